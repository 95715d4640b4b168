// What a runner must be able to do for a run to go on when a worker is lost, and to take it
// back (net/crew/crew.h): its workers meet in rounds, between which they do not need each
// other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

class RoundRunner {
 public:
  virtual ~RoundRunner() = default;

  // Ends whatever is under way, which is lost, and lets go of the communicator. Only JoinGroup
  // may follow, or LeaveGroup again.
  virtual void LeaveGroup() = 0;
  // Collective. The communicator has become that of a new group, in which the workers count for
  // `weights` (RunnerPlace::weights). What is this worker's own stays: its weights, its
  // optimiser and, unless it comes `afresh`, what its codecs remember.
  virtual Status JoinGroup(const std::vector<double>& weights, bool afresh) = 0;

  // Returns the parts into which the workers of a group fall, by name: those of different parts
  // hear nothing of each other, where workers have neighbours.
  virtual std::vector<std::vector<int>> PartsOf(const std::vector<int>& group) const {
    return {group};
  }
  // Fails with kUnavailable, on all workers alike, if the algorithm cannot go on with a group.
  virtual Status CheckThoseLeft(const std::vector<int>& group) const {
    (void)group;
    return {};
  }

  // Returns the round, counted from 1, that follows `step` steps.
  virtual int64_t RoundAfter(int64_t step) const = 0;
  // As RoundCourse has them (protocol/round_course.h).
  virtual uint64_t reached() const = 0;
  virtual void Regroup(uint64_t furthest) = 0;
  // What all workers have the same that have come equally far, or what one that comes back is
  // to begin with. Values may be written to it.
  virtual std::vector<std::span<float>> SharedState() = 0;
  // Collective, when all have the source's SharedState: `newcomers`, by name, are of the group
  // from here on.
  virtual Status Admit(const std::vector<int>& newcomers) {
    (void)newcomers;
    return {};
  }
  // Begins after `step` steps, at the shared model, with nothing of its own.
  virtual void StartFromShared(int64_t step) = 0;
};

}  // namespace elastiquant
