// A step whose gradients go as they are, by the user's own all-reduce, because compression does
// not pay. DDP's buckets are summed side by side, and the workers call the roll meanwhile:
// nothing else of ours would tell who has not come.
#pragma once

#include <cstddef>
#include <utility>

#include "elastiquant/base/status.h"
#include "elastiquant/base/stopwatch.h"

namespace elastiquant {

// How far such a step has come. Its user locks it.
class ExactStep {
 public:
  void Begin() { *this = ExactStep(/*under_way=*/true, roll_is_due_); }
  // All buckets are averaged, or the step has failed.
  void End() { is_under_way_ = false; }
  bool is_under_way() const { return is_under_way_; }

  // One more bucket is being summed, the step's last one if `last`.
  void StartSum(bool last) {
    ++sums_;
    all_started_ = last;
    since_last_ = Stopwatch();
  }
  // A bucket has its mean, and whether all of it is finite. Returns whether that was the last
  // one, and none has failed.
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

  ExactStep() = default;

 private:
  ExactStep(bool under_way, bool roll_is_due)
      : is_under_way_(under_way), roll_is_due_(roll_is_due) {}

  bool is_under_way_ = false;
  bool all_started_ = false;
  size_t sums_ = 0;
  bool all_finite_ = true;
  Status failure_;
  Stopwatch since_last_;
  bool roll_is_due_ = false;
};

}  // namespace elastiquant
