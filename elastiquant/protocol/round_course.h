// How a worker goes on with its rounds when another was lost in the midst of them, or came
// back. All workers pass the same milestones in the same order: what follows each local step,
// fragment by fragment. Those that are left form a new group, and tell each other how far they
// have come. The one that is furthest hands on the shared model; the others need not do again
// what has moved it already.
//
// Whatever was under way when the group broke is lost with it. A round that is sent and applied
// after the same step is then made again by those who are left, so it costs nothing but the
// lost worker's part. One that is applied later is passed over: the work stays in each worker's
// local values, and goes with the next round. Eager updates count such a round as a mean of 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "elastiquant/protocol/round_schedule.h"

namespace elastiquant {

// A place in the course of a run, as one number that grows: after `step` local steps, the
// `slot`th thing that follows.
inline constexpr int kSlotBits = 20;
constexpr uint64_t MilestoneOf(int64_t step, uint64_t slot) {
  return (static_cast<uint64_t>(step) << kSlotBits) | slot;
}

struct RoundTask {
  enum class Kind : uint8_t {
    kSend,
    kApply,   // wait for the mean and apply it
    kTakeUp,  // go on from the shared model, which has the mean already
    kPass,    // there is nothing to do
  };
  Kind kind = Kind::kPass;
  size_t fragment = 0;
  int64_t round = 0;
  bool again = false;  // this worker has sent it before, in a group that broke

  bool operator==(const RoundTask&) const = default;
};

class RoundCourse {
 public:
  explicit RoundCourse(const RoundSchedule& schedule) : schedule_(schedule) {}

  // The worker has made a local step, the `step`th, counted from 1, and has no tasks left. If
  // it is the last one, all that is under way is brought together.
  void Enter(int64_t step, bool is_last);
  // Returns what to do next, or nothing until the next local step. Done says that it was done.
  std::optional<RoundTask> Next() const;
  void Done();
  // Whether one of the tasks since Enter ends a round: between two rounds, workers may come.
  bool ends_round() const { return ends_round_; }

  // Returns the first milestone that this worker has not passed.
  uint64_t reached() const;
  // The group is a new one, in which nothing is under way, and of whose workers the furthest
  // has reached this milestone. It must be no less than reached().
  void Regroup(uint64_t furthest);
  // Makes this worker, which was not there, begin after `step` local steps.
  void StartAt(int64_t step);
  // The mean of a fragment was under way when the run was saved.
  void SetUnderWay(size_t fragment) { under_way_.insert(fragment); }

 private:
  bool IsPassed() const { return MilestoneOf(step_, next_) < furthest_; }
  // Whether what is to be applied now was to be sent after the same local step.
  bool WasJustSent(const FragmentAction& apply) const;
  // Whether a group broke when its furthest worker had sent what is to be applied now, and not
  // applied it: then nobody ever did, however far others have come since.
  bool IsLost(const FragmentAction& apply) const;

  const RoundSchedule schedule_;
  int64_t step_ = 0;
  std::vector<FragmentAction> actions_;  // that follow this step
  size_t next_ = 0;                      // of them
  bool ends_round_ = false;
  uint64_t furthest_ = 0;
  std::set<size_t> under_way_;          // fragments
  std::map<size_t, int64_t> sent_;      // by fragment, the round that this worker sent last
  std::map<size_t, uint64_t> sent_at_;  // by fragment, the milestone of its newest send
  std::set<uint64_t> breaks_;           // how far the furthest was when a group broke
};

}  // namespace elastiquant
