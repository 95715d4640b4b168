// Between DDP's flat gradients, of any floating type on any device, and the reducer's buckets,
// which are fp32 in the host's memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/ddp/ddp_plan.h"

namespace elastiquant {

class Staging {
 public:
  // plan and parameters must outlive it.
  Staging(const DdpPlan& plan, std::span<const DdpParameter> parameters);

  std::span<float> bucket(size_t index) { return buckets_[index]; }

  // A step begins: nothing is here.
  void Begin();
  // Whether all of a bucket's values are here.
  bool complete(size_t bucket) const { return missing_[bucket] == 0; }

  // One parameter's gradient, ahead of its DDP bucket: takes its values to our bucket, in the
  // order in which they lie in memory. Returns false, and leaves them to Arrive, if that may
  // not be theirs in DDP's bucket, if they are not in the host's memory, or if they arrived
  // before. Errors: Internal if it was taken before in this step.
  Result<bool> Take(size_t parameter, const at::Tensor& gradient);
  // A DDP bucket's flat gradients: takes what is in them, and was not taken before, to our
  // buckets. Those of a device come by way of page-locked memory; returns when all are here.
  // Errors: Unsupported for sparse gradients and for types other than fp32, fp16 and bf16;
  // InvalidArgument for a wrong size.
  Status Arrive(size_t ddp_bucket, const at::Tensor& gradients);
  // A bucket back to the memory of its DDP bucket; or, if there is no mean, NaN.
  void Return(size_t bucket, bool is_mean);
  // When all buckets of a DDP bucket are back: to the device, if it came from there. The
  // tensor that arrived.
  at::Tensor Depart(size_t ddp_bucket);

 private:
  enum class From : uint8_t { kNowhere, kTake, kArrive };

  const DdpPlan& plan_;
  std::span<const DdpParameter> parameters_;
  std::vector<std::vector<float>> buckets_;
  std::vector<at::Tensor> arrived_, host_;  // by DDP bucket
  std::vector<size_t> missing_;             // by bucket: its parameters that are not here
  std::vector<From> from_;                  // by parameter: how its values came here
};

}  // namespace elastiquant
