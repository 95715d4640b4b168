// Copies gradients between DDP's flat tensors, of fp32, fp16 or bf16 on any device, and the
// reducer's buckets, which are fp32 in the host's memory and in the metric of the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/ddp/ddp_plan.h"
#include "elastiquant/layers/metric.h"

namespace elastiquant {

// DdpReduction has one for its layout.
class Staging {
 public:
  // `plan` and `parameters` must outlive it.
  Staging(const DdpPlan& plan, std::span<const DdpParameter> parameters);

  std::span<float> bucket(size_t index) { return buckets_[index]; }

  // Begins a step, in which no values are here yet. `metric` may be null; it must live as long
  // as the step.
  void Begin(Metric* metric);
  // Whether all of a bucket's values are here.
  bool complete(size_t bucket) const { return missing_[bucket] == 0; }

  // Takes one parameter's gradient to our bucket, ahead of its DDP bucket, in the order in
  // which its values lie in memory. Returns false, and leaves the values to Arrive, if that may
  // not be their order in DDP's bucket, if they are not in the host's memory or not of a known
  // type, or if they arrived before. Fails with Internal if the gradient was taken before in
  // this step.
  Result<bool> Take(size_t parameter, const at::Tensor& gradient);
  // Takes a DDP bucket's flat gradients to our buckets, but for those that Take took. Gradients
  // of a device come by way of page-locked memory; returns when all are here. Fails with
  // Unsupported for sparse gradients and for types other than fp32, fp16 and bf16, and with
  // InvalidArgument for a wrong size.
  Status Arrive(size_t ddp_bucket, const at::Tensor& gradients);
  // Copies a bucket back to its DDP bucket in the host's memory, or writes NaN there if there
  // is no mean.
  void Return(size_t bucket, bool is_mean);
  // Returns the tensor that arrived, when all buckets of the DDP bucket are back. If it is a
  // device's, copies the values there before.
  at::Tensor Depart(size_t ddp_bucket);

 private:
  enum class From : uint8_t { kNowhere, kTake, kArrive };

  // Copy a parameter's values to its bucket, and from there.
  template <typename Value>
  void CopyIn(const Value* values, size_t parameter);
  template <typename Value>
  void CopyOut(size_t parameter, Value* values);
  std::span<float> ValuesOf(size_t parameter);

  const DdpPlan& plan_;
  std::span<const DdpParameter> parameters_;
  std::vector<std::vector<float>> buckets_;
  Metric* metric_ = nullptr;                // of this step
  std::vector<at::Tensor> arrived_, host_;  // by DDP bucket
  std::vector<size_t> missing_;  // by bucket: how many of its parameters are not here
  std::vector<From> from_;       // by parameter: how its values came here
};

}  // namespace elastiquant
