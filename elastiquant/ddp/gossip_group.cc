#include "elastiquant/ddp/gossip_group.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "elastiquant/base/bytes.h"

namespace elastiquant {
namespace {

constexpr std::chrono::milliseconds kLook{20};

}  // namespace

Result<std::unique_ptr<GossipGroup>> GossipGroup::Connect(CommunicatorOptions options,
                                                          bool goes_on) {
  std::unique_ptr<GossipGroup> group(new GossipGroup);
  group->patience_ = 2 * options.timeout;
  if (goes_on && options.world_size > 1) {
    CrewOptions crew{.job = std::move(options)};
    crew.may_return = false;
    EQ_ASSIGN_OR_RETURN(group->crew_, Crew::Start(crew));
    return group;
  }
  options.on_peer_lost = [](const Status&) {};  // waits then end with the verdict
  EQ_ASSIGN_OR_RETURN(group->comm_, Communicator::Connect(options));
  return group;
}

std::vector<int> GossipGroup::lost() const {
  std::vector<int> lost;
  for (int w = 0; crew_ != nullptr && w < crew_->workers(); ++w) {
    if (std::ranges::find(crew_->group(), w) == crew_->group().end()) lost.push_back(w);
  }
  return lost;
}

// A worker that leaves before the others may say so to its neighbours before its group breaks.
bool GossipGroup::WaitsForBreak() const {
  const auto end = std::chrono::steady_clock::now() + patience_;
  while (!crew_->is_broken() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kLook);
  }
  return crew_->is_broken();
}

Status GossipGroup::Persist(GossipExchange& exchange, const std::function<Status()>& act) {
  for (;;) {
    Status status = crew_ ? crew_->Check() : Status();
    if (status.ok()) status = act();
    const bool may_go_on = crew_ != nullptr && status.code() == StatusCode::kUnavailable;
    if (!may_go_on || !WaitsForBreak()) return status;
    EQ_RETURN_IF_ERROR(Regroup(exchange));
  }
}

Status GossipGroup::Regroup(GossipExchange& exchange) {
  for (;;) {
    exchange.Leave();
    const Result<bool> regrouped = crew_->Regroup(/*at_boundary=*/false);
    if (!regrouped.ok()) {
      return Unavailable("this worker cannot go on: " + regrouped.status().message() +
                         " (workers meet at worker 0, which must not be lost)");
    }
    if (!*regrouped) return Unavailable("the other workers have ended the run");
    comm().SetActivity("going on in another group of workers");
    Status status = exchange.Join(crew_->group(), {});
    if (status.ok()) status = CatchUp();
    if (status.ok() || !crew_->is_broken()) return status;  // or one more was lost meanwhile
  }
}

// Collective. Whoever has not heard of the last mean's end gets it from one that has.
Status GossipGroup::CatchUp() {
  EQ_ASSIGN_OR_RETURN(const auto ended, comm().AllGather(ended_));
  const auto first = std::ranges::max_element(ended);
  furthest_ = *first;
  if (std::ranges::all_of(ended, [&](uint64_t e) { return e == *first; })) return {};
  const auto root = static_cast<int>(first - ended.begin());
  EQ_ASSIGN_OR_RETURN(const auto sizes, comm().AllGather(mean_.values.size()));
  EQ_ASSIGN_OR_RETURN(const auto distances,
                      comm().AllGather(std::bit_cast<uint64_t>(mean_.distance)));
  std::vector<uint8_t> bytes(sizes[static_cast<size_t>(root)] * sizeof(float));
  // The last to have ended is a mean, and not the barrier behind it.
  const bool lacks_mean = ended_ < furthest_ && furthest_ % 2 == 1;
  if (comm().rank() == root) bytes = BytesOf(std::span<const float>(mean_.values));
  if (!bytes.empty()) EQ_RETURN_IF_ERROR(comm().Broadcast(root, bytes));
  if (!lacks_mean) return {};
  mean_.values.resize(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(mean_.values.data(), bytes.data(), bytes.size());
  mean_.distance = std::bit_cast<double>(distances[static_cast<size_t>(root)]);
  return {};
}

// It has two acts, the mean and a barrier: nobody goes on before all have the mean, so that
// whoever lacks it can be given it.
Result<ModelMean> GossipGroup::Mean(GossipExchange& exchange, std::span<const float> own) {
  const uint64_t before = ended_;
  const auto average = [&]() -> Status {
    if (furthest_ <= before) {
      EQ_ASSIGN_OR_RETURN(mean_, MeanOfModels(&comm(), own));
    }
    ended_ = before + 1;
    return {};
  };
  const auto meet = [&]() -> Status {
    if (furthest_ <= before + 1) EQ_RETURN_IF_ERROR(comm().Barrier());
    ended_ = before + 2;
    return {};
  };
  EQ_RETURN_IF_ERROR(Persist(exchange, average));
  EQ_RETURN_IF_ERROR(Persist(exchange, meet));
  return std::exchange(mean_, {});
}

}  // namespace elastiquant
