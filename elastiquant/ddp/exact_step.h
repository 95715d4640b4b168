// A step whose gradients go as they are, by the user's own all-reduce, because compression does
// not pay. DDP's buckets are summed side by side, and the workers call the roll meanwhile:
// nothing else of ours would tell who has not come.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>

#include "elastiquant/base/status.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/ddp/engine_ties.h"
#include "elastiquant/ddp/step_futures.h"

namespace elastiquant {

// Begins the sum over the workers of a flat tensor, in place. The future ends with it.
using AllReduce = std::function<Future(const at::Tensor&)>;

// Drives such steps, one after another. Thread-safe.
class ExactStep {
 public:
  // Takes the mean of DDP's bucket `index`. It is called in any order, by any thread, and must
  // call CountMean.
  using OnMean = std::function<void(size_t index, const at::Tensor& mean)>;

  // Once `ties` are cut, on_mean is not called any more.
  ExactStep(AllReduce all_reduce, std::shared_ptr<EngineTies> ties, OnMean on_mean);

  void Begin();
  // Begins to average the gradients of DDP's bucket `index` in place. `last` says that it is
  // the step's last bucket; CallTheRoll must follow then.
  void Average(size_t index, bool last, const at::Tensor& gradients, int world_size);
  // Counts a bucket that has its mean; `finite` says whether all values of it are finite.
  // Returns whether the whole step is averaged now, and no sum has failed: the step is over.
  bool CountMean(bool finite);
  // Whether all values of the step's means are finite, so far.
  bool all_finite() const;
  // Returns the time that has passed since the last Average.
  double SecondsSinceLast() const;

  // Waits until all workers have come to the end of the step, which `barrier` tells, and until
  // all sums have ended. Fails as the barrier does, or if a sum has failed: with the error that
  // says which worker is lost, for which it waits as long as `patience`, or else with that of
  // the sum.
  Status CallTheRoll(const std::function<Status()>& barrier,
                     std::chrono::milliseconds patience);
  // Waits for CallTheRoll of the last step: what workers say to each other between steps must
  // not mix with it.
  void AwaitRoll();

  // Whether a step has begun that is not over.
  bool is_under_way() const;
  // Ends all waiting for good: training has ended.
  void Cancel();

 private:
  void Fail(Status failure);

  const AllReduce all_reduce_;
  const std::shared_ptr<EngineTies> ties_;
  const OnMean on_mean_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_under_way_ = false;
  bool all_started_ = false;
  size_t sums_ = 0;  // under way
  bool all_finite_ = true;
  Status failure_;  // of the first sum that failed
  Stopwatch since_last_;
  bool roll_is_due_ = false;
  bool is_cancelled_ = false;
};

}  // namespace elastiquant
