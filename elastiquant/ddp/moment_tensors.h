// The second moments of an optimiser as it keeps them: tensors, which may be on a device, or of
// another type than the fp32 that a Metric reads.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/ddp/ddp_plan.h"
#include "elastiquant/layers/metric.h"

namespace elastiquant {

// DdpEngine has one.
class MomentTensors {
 public:
  // `parameters` must outlive it.
  explicit MomentTensors(std::span<const DdpParameter> parameters) : parameters_(parameters) {}

  // Takes the tensor of each parameter's second moments, which is undefined where there are
  // none, and must lie in memory as the parameter does. The optimiser may write to them between
  // steps. Fails with kInvalidArgument, and changes nothing, unless there is a tensor for each
  // parameter, of as many values, dense, and of a floating-point type.
  Status Set(std::vector<at::Tensor> tensors);

  // Returns the values as they are now. Those of a device, or of another type than fp32, are
  // copied, which takes room for as many floats.
  SecondMoments Now();

 private:
  const std::span<const DdpParameter> parameters_;
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> copies_;  // undefined where the tensor itself can be read
};

}  // namespace elastiquant
