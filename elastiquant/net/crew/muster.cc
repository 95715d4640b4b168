#include "elastiquant/net/crew/muster.h"

#include <algorithm>
#include <utility>

#include "elastiquant/base/contains.h"
#include "elastiquant/base/number.h"
#include "elastiquant/base/split.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

constexpr std::pair<Arrival, std::string_view> kArrivals[] = {{Arrival::kBroken, "broken"},
                                                              {Arrival::kBoundary, "boundary"},
                                                              {Arrival::kNewcomer, "newcomer"},
                                                              {Arrival::kGivesUp, "gives-up"}};

// Whether who comes so knows how far the run has come.
bool KnowsTheRun(Arrival arrival) {
  return arrival == Arrival::kBroken || arrival == Arrival::kBoundary;
}

// Whether a worker has given up because it could not connect to another one. The worker that is
// blamed may be that other one. It is then alive and about to come, and going on without it
// would lose two workers to one broken path.
bool AnyGivesUp(const MusterView& view) {
  return std::ranges::any_of(view.here,
                             [](const auto& here) { return here.second == Arrival::kGivesUp; });
}

}  // namespace

MusterOrder Muster::Look(const MusterView& view, milliseconds now) {
  TakeIn(view, now);
  if (view.over) return {MusterOrder::Kind::kGoHome};
  if (view.decided) {
    return {Contains(*view.decided, options_.worker) ? MusterOrder::Kind::kJoin
                                                     : MusterOrder::Kind::kStayOut,
            *view.decided};
  }
  if (options_.arrival == Arrival::kNewcomer) return AsNewcomer(view, now);
  const auto awaited = [&](int worker) { return IsAwaited(worker, view, now); };
  if (std::ranges::any_of(options_.group, awaited)) return {MusterOrder::Kind::kWait};
  return Propose(view, now);
}

void Muster::TakeIn(const MusterView& view, milliseconds now) {
  if (!began_) began_ = now;
  for (const auto& [worker, beat] : view.hearts) {
    const auto [heart, is_new] = hearts_.try_emplace(worker, Heart{beat, now});
    if (!is_new && heart->second.beat != beat) heart->second = {beat, now};
  }
}

bool Muster::IsSilent(int worker, milliseconds now) const {
  const auto heart = hearts_.find(worker);
  const milliseconds since = heart == hearts_.end() ? *began_ : heart->second.since;
  return now - since > options_.patience;
}

// A newcomer of this name has come in the place of one that was lost.
bool Muster::IsAwaited(int worker, const MusterView& view, milliseconds now) const {
  if (worker == options_.worker || view.here.contains(worker)) return false;
  const bool counts_as_lost = options_.lost.contains(worker) && !AnyGivesUp(view);
  if (counts_as_lost || now - *began_ > options_.limit) return false;
  return !IsSilent(worker, now);
}

MusterOrder Muster::Propose(const MusterView& view, milliseconds now) const {
  MusterOrder order{MusterOrder::Kind::kPropose};
  bool at_boundary = true;
  for (const int worker : options_.group) {
    const auto here = view.here.find(worker);
    if (here == view.here.end() || !KnowsTheRun(here->second)) continue;
    if (worker != options_.worker && IsSilent(worker, now)) continue;  // it came, and died
    order.group.push_back(worker);
    at_boundary = at_boundary && here->second == Arrival::kBoundary;
  }
  if (!at_boundary) return order;
  for (const auto& [worker, arrival] : view.here) {
    if (arrival == Arrival::kNewcomer) order.group.push_back(worker);
  }
  return order;
}

MusterOrder Muster::AsNewcomer(const MusterView& view, milliseconds now) const {
  // Whoever bore this worker's name in the group is no more. Other newcomers wait as well.
  const auto lives = [&](int worker) {
    const auto here = view.here.find(worker);
    const bool knows_the_run = here == view.here.end() || KnowsTheRun(here->second);
    return worker != options_.worker && knows_the_run && !IsSilent(worker, now);
  };
  return {std::ranges::any_of(options_.group, lives) ? MusterOrder::Kind::kWait
                                                     : MusterOrder::Kind::kDespair};
}

std::string EncodeGroup(const std::vector<int>& group) {
  std::string text;
  for (const int worker : group) text += (text.empty() ? "" : ",") + std::to_string(worker);
  return text;
}

Result<std::vector<int>> ParseGroup(std::string_view text) {
  std::vector<int> group;
  for (const std::string_view word : SplitAt(text, ',')) {
    int worker = -1;
    if (!ParseNumber(word, &worker) || worker < 0 || Contains(group, worker)) {
      return CorruptData("\"" + std::string(text) + "\" is no list of workers");
    }
    group.push_back(worker);
  }
  return group;
}

std::string EncodeArrival(Arrival arrival) {
  for (const auto& [known, name] : kArrivals) {
    if (known == arrival) return std::string(name);
  }
  return "";
}

Result<Arrival> ParseArrival(std::string_view text) {
  for (const auto& [known, name] : kArrivals) {
    if (name == text) return known;
  }
  return CorruptData("\"" + std::string(text) + "\" is no way in which workers come");
}

}  // namespace elastiquant
