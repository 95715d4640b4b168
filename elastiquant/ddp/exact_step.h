// A step whose gradients go as they are, by the user's own all-reduce, because compression does
// not pay. DDP's buckets are summed side by side, and the workers call the roll meanwhile:
// nothing else of ours would tell who has not come.
#pragma once

#include <cstddef>
#include <utility>

#include "elastiquant/base/status.h"
#include "elastiquant/base/stopwatch.h"

namespace elastiquant {

// Counts how far such a step has come. It is not safe for several threads: its user locks it.
class ExactStep {
 public:
  void Begin() {
    const bool roll_is_due = roll_is_due_;
    *this = {};
    is_under_way_ = true;
    roll_is_due_ = roll_is_due;
  }
  // Must be called when all buckets are averaged, or the step has failed.
  void End() { is_under_way_ = false; }
  bool is_under_way() const { return is_under_way_; }

  // Counts one more bucket that is being summed; `last` says that it is the step's last one.
  void StartSum(bool last) {
    ++sums_;
    all_started_ = last;
    since_last_ = Stopwatch();
  }
  // Counts a bucket that has its mean; `finite` says whether all values of it are finite.
  // Returns whether the whole step is averaged now, and no sum has failed.
  bool FinishSum(bool finite) {
    all_finite_ &= finite;
    return --sums_ == 0 && all_started_ && failure_.ok();
  }
  void FailSum(Status failure) {
    if (failure_.ok()) failure_ = std::move(failure);
    --sums_;
  }
  // The number of buckets that are being summed.
  size_t sums() const { return sums_; }
  bool all_finite() const { return all_finite_; }
  // Returns why the first sum failed that has, or OK.
  const Status& failure() const { return failure_; }
  double SecondsSinceLast() const { return since_last_.Seconds(); }

  // From the step's last bucket on, until all workers are known to be there, what workers say
  // to each other between steps must wait.
  void SetRollIsDue(bool due) { roll_is_due_ = due; }
  bool roll_is_due() const { return roll_is_due_; }

 private:
  bool is_under_way_ = false;
  bool all_started_ = false;
  size_t sums_ = 0;
  bool all_finite_ = true;
  Status failure_;
  Stopwatch since_last_;
  bool roll_is_due_ = false;
};

}  // namespace elastiquant
