// The futures that DDP waits for in a step, one for each of its buckets.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <mutex>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

using Future = c10::intrusive_ptr<c10::ivalue::Future>;

// Returns a future for a tensor on the device of `gradients`.
Future MakeFuture(const at::Tensor& gradients);
// Sets an error that Python raises: DistBackendError for a lost worker, or else c10::Error. A
// future that is null or complete is left as it is.
void SetError(const Future& future, const Status& status);

// A bucket of ours that is averaged, or else is to be NaN.
struct Reduced {
  size_t bucket;
  bool is_mean;
};

// Holds the futures of one step after another, and the error that ends training. Thread-safe.
class StepFutures {
 public:
  // Begins a step. Fails with the error that has ended training, or with Internal if a step is
  // under way.
  Status Begin();
  // Takes the future of DDP's bucket `index`; they come in order. Fails with the error that has
  // ended training, or with Internal for another bucket than the next.
  Status Add(size_t index, Future future);
  // Says that DDP's bucket `index` has arrived, which `parts` buckets of ours make up. Returns
  // those of them that were averaged before. Fails with the error that has ended training.
  Result<std::vector<Reduced>> Arrive(size_t index, size_t parts);
  // Returns whether DDP's bucket `index` has arrived. If not, Arrive will return `part`.
  bool HasArrived(size_t index, Reduced part);
  // Counts a bucket of ours that DDP's bucket `index` holds the mean of. Returns whether it was
  // the last one, and false when training has ended.
  bool CountReturned(size_t index);
  // Returns the future of DDP's bucket `index`, which its caller will complete whatever comes,
  // or null when training has ended.
  Future Release(size_t index);
  // Ends the step, and returns the futures of its last `count` buckets. Fails with the error
  // that has ended training.
  Result<std::vector<Future>> End(size_t count);

  // Ends training with an error, unless another has, and the step. Returns its futures, which
  // the caller gives the error.
  std::vector<Future> Fail(const Status& error);
  // Returns the error that has ended training, or OK.
  Status error() const;
  bool in_step() const;

 private:
  struct Arrival {
    Future future;
    bool is_here = false;
    size_t parts_left = 0;
  };
  struct Ahead {
    size_t index;
    Reduced part;
  };

  mutable std::mutex mutex_;
  std::vector<Arrival> arrivals_;  // by DDP bucket
  std::vector<Ahead> ahead_;       // averaged before DDP's bucket has arrived
  bool in_step_ = false;
  Status error_;
};

}  // namespace elastiquant
