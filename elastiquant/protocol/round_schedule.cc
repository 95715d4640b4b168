#include "elastiquant/protocol/round_schedule.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace elastiquant {

Result<RoundSchedule> RoundSchedule::Make(const RoundScheduleOptions& o) {
  const std::string every = std::to_string(o.every);
  if (o.every < 1) {
    return InvalidArgument("workers meet every " + every + " steps; it must be at least 1");
  }
  if (o.fragments < 1 || static_cast<int64_t>(o.fragments) > o.every) {
    return InvalidArgument("there are " + std::to_string(o.fragments) +
                           " fragments; with a round of " + every +
                           " steps there can be from 1 to " + every);
  }
  if (o.delay < 0 || o.delay > o.every) {
    return InvalidArgument("a mean is applied " + std::to_string(o.delay) +
                           " steps after it was sent; with a round of " + every +
                           " steps it can be from 0 to " + every);
  }
  int64_t begin = 0;
  for (const int64_t end : o.ends) {
    if (end - begin < o.every) {
      return InvalidArgument("a round ends " + std::to_string(end - begin) +
                             " steps after it began; none may be shorter than " + every);
    }
    begin = end;
  }
  return RoundSchedule(o);
}

std::vector<int64_t> GrowingRounds(int64_t every, int power, double peak, int64_t steps,
                                   const std::function<double(int64_t step)>& rate_of) {
  std::vector<int64_t> ends;
  int64_t begin = 0;
  while (power > 0 && steps - begin >= every) {
    const double ratio = peak / rate_of(begin);
    double length = static_cast<double>(every);
    for (int i = 0; i < power; ++i) length *= ratio;
    const auto left = static_cast<double>(steps - begin);
    // A rate of 0 makes it infinite.
    const auto whole = static_cast<int64_t>(std::min(std::floor(length + .5), left));
    begin += std::max(every, whole);
    ends.push_back(begin);
  }
  return ends;
}

std::vector<int64_t> PhasedRounds(int64_t every, std::span<const RoundPhase> phases,
                                  int64_t steps) {
  std::vector<int64_t> ends;
  for (int64_t begin = 0; !phases.empty() && begin < steps;) {
    const auto later = std::ranges::upper_bound(phases, begin, {}, &RoundPhase::from);
    begin += later == phases.begin() ? every : std::prev(later)->every;
    ends.push_back(begin);
  }
  return ends;
}

int64_t RoundSchedule::EndOf(int64_t round) const {
  const auto listed = static_cast<int64_t>(options_.ends.size());
  if (round < 0) return 0;
  if (round < listed) return options_.ends[static_cast<size_t>(round)];
  return (listed > 0 ? options_.ends.back() : 0) + (round - listed + 1) * options_.every;
}

int64_t RoundSchedule::RoundOf(int64_t step) const {
  const auto listed = std::ranges::lower_bound(options_.ends, step);
  if (listed != options_.ends.end()) return listed - options_.ends.begin();
  const int64_t begin = options_.ends.empty() ? 0 : options_.ends.back();
  return std::ssize(options_.ends) + (step - begin - 1) / options_.every;
}

// In a round of S steps, fragment p of P is sent after step floor((p + 1) S / P).
int64_t RoundSchedule::SendsUntil(size_t fragment, int64_t step) const {
  if (step <= 0) return 0;
  const int64_t round = RoundOf(step), begin = EndOf(round - 1);
  const int64_t steps = EndOf(round) - begin;
  const int64_t sent = begin + static_cast<int64_t>(fragment + 1) * steps /
                                   static_cast<int64_t>(options_.fragments);
  return round + (sent <= step ? 1 : 0);
}

bool RoundSchedule::IsSentAfter(size_t fragment, int64_t step) const {
  return step > 0 && SendsUntil(fragment, step) > SendsUntil(fragment, step - 1);
}

bool RoundSchedule::IsUnderWay(size_t fragment, int64_t step) const {
  return SendsUntil(fragment, step) > SendsUntil(fragment, step - options_.delay);
}

std::vector<FragmentAction> RoundSchedule::After(int64_t step) const {
  using Kind = FragmentAction::Kind;
  std::vector<FragmentAction> sends, applies;
  for (size_t f = 0; f < options_.fragments; ++f) {
    if (IsSentAfter(f, step)) sends.push_back({Kind::kSend, f, SendsUntil(f, step) - 1});
    const int64_t sent = step - options_.delay;
    if (IsSentAfter(f, sent)) applies.push_back({Kind::kApply, f, SendsUntil(f, sent) - 1});
  }
  std::vector<FragmentAction>& first = options_.delay > 0 ? applies : sends;
  const std::vector<FragmentAction>& second = options_.delay > 0 ? sends : applies;
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<FragmentAction> RoundSchedule::AtEnd(int64_t step) const {
  using Kind = FragmentAction::Kind;
  std::vector<FragmentAction> actions;
  for (size_t f = 0; f < options_.fragments; ++f) {
    if (IsUnderWay(f, step)) actions.push_back({Kind::kApply, f, SendsUntil(f, step) - 1});
  }
  for (size_t f = 0; f < options_.fragments; ++f) {
    // Nothing has changed where the mean was applied just now, and taken over as it is.
    if (IsSentAfter(f, step) && options_.delay == 0) continue;
    actions.push_back({Kind::kSend, f, SendsUntil(f, step)});
    actions.push_back({Kind::kApply, f, SendsUntil(f, step)});
  }
  return actions;
}

}  // namespace elastiquant
