#include "elastiquant/ddp/exact_step.h"

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace elastiquant {
namespace {

Status AllReduceFailed(const std::string& why) {
  return Internal("the uncompressed all-reduce of the model's process group failed: " + why);
}

// A sum that a lost worker has no part in may never end, and who destroys its process group
// waits for it: what holds the group is kept until the process ends.
void KeepForEver(const AllReduce& all_reduce) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<AllReduce>;
  const std::lock_guard lock(mutex);
  kept.push_back(all_reduce);
}

}  // namespace

ExactStep::ExactStep(AllReduce all_reduce, std::shared_ptr<EngineTies> ties, OnMean on_mean)
    : all_reduce_(std::move(all_reduce)),
      ties_(std::move(ties)),
      on_mean_(std::move(on_mean)) {}

void ExactStep::Begin() {
  const std::lock_guard lock(mutex_);
  is_under_way_ = true;
  all_started_ = false;
  sums_ = 0;
  all_finite_ = true;
  failure_ = {};
}

void ExactStep::Average(size_t index, bool last, const at::Tensor& gradients, int world_size) {
  {
    const std::lock_guard lock(mutex_);
    ++sums_;
    all_started_ = roll_is_due_ = last;
    since_last_ = Stopwatch();
  }
  try {
    gradients.div_(world_size);
    all_reduce_(gradients)->addCallback(
        [this, ties = ties_, index, gradients](c10::ivalue::Future& done) {
          const std::string error = done.hasError() ? done.tryRetrieveErrorMessage() : "";
          ties->With([&] {
            done.hasError() ? Fail(AllReduceFailed(error)) : on_mean_(index, gradients);
          });
        });
  } catch (const std::exception& e) {
    Fail(AllReduceFailed(e.what()));
  }
}

bool ExactStep::CountMean(bool finite) {
  const std::lock_guard lock(mutex_);
  all_finite_ &= finite;
  --sums_;
  const bool is_over = sums_ == 0 && all_started_ && failure_.ok();
  if (is_over) is_under_way_ = false;
  changed_.notify_all();
  return is_over;
}

// CallTheRoll tells why: who was lost says more than how the sum has failed.
void ExactStep::Fail(Status failure) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = std::move(failure);
  --sums_;
  changed_.notify_all();
}

bool ExactStep::all_finite() const {
  const std::lock_guard lock(mutex_);
  return all_finite_;
}

double ExactStep::SecondsSinceLast() const {
  const std::lock_guard lock(mutex_);
  return since_last_.Seconds();
}

Status ExactStep::CallTheRoll(const std::function<Status()>& barrier,
                              std::chrono::milliseconds patience) {
  EQ_RETURN_IF_ERROR(barrier());
  Status failure;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return sums_ == 0 || is_cancelled_; });
    failure = failure_;
    if (failure.ok()) {
      roll_is_due_ = false;
      changed_.notify_all();
      return {};
    }
  }
  const Status verdict = ties_->Verdict(patience);
  return verdict.ok() ? failure : verdict;
}

void ExactStep::AwaitRoll() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !roll_is_due_ || is_cancelled_; });
}

bool ExactStep::is_under_way() const {
  const std::lock_guard lock(mutex_);
  return is_under_way_;
}

void ExactStep::Cancel() {
  const std::lock_guard lock(mutex_);
  if (is_under_way_ && sums_ > 0) KeepForEver(all_reduce_);
  is_under_way_ = false;
  is_cancelled_ = true;
  changed_.notify_all();
}

}  // namespace elastiquant
