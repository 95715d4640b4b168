// Between DDP's flat gradients, of any floating type on any device, and the reducer's buckets,
// which are fp32 in the host's memory.
#pragma once

#include <ATen/core/Tensor.h>

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

  // A DDP bucket's flat gradients: takes what is in them to our buckets. Those of a device come
  // by way of page-locked memory; returns when all are here. Errors: Unsupported for sparse
  // gradients and for types other than fp32, fp16 and bf16; InvalidArgument for a wrong size.
  Status Arrive(size_t ddp_bucket, const at::Tensor& gradients);
  // A bucket back to the memory of its DDP bucket; or, if there is no mean, NaN.
  void Return(size_t bucket, bool is_mean);
  // When all buckets of a DDP bucket are back: to the device, if it came from there. The
  // tensor that arrived.
  at::Tensor Depart(size_t ddp_bucket);

 private:
  const DdpPlan& plan_;
  std::span<const DdpParameter> parameters_;
  std::vector<std::vector<float>> buckets_;
  std::vector<at::Tensor> arrived_, host_;  // by DDP bucket
};

}  // namespace elastiquant
