#include "elastiquant/protocol/round_schedule.h"

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
  return RoundSchedule(o);
}

// The first send of fragment p is after step floor((p + 1) every / fragments).
int64_t RoundSchedule::SendsUntil(size_t fragment, int64_t step) const {
  const int64_t first = static_cast<int64_t>(fragment + 1) * options_.every /
                        static_cast<int64_t>(options_.fragments);
  return step < first ? 0 : (step - first) / options_.every + 1;
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
