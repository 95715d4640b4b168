#include "elastiquant/ddp/moment_tensors.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <utility>

namespace elastiquant {

Status MomentTensors::Set(std::vector<at::Tensor> tensors) {
  if (tensors.size() != parameters_.size()) {
    return InvalidArgument("there are second moments of " + std::to_string(tensors.size()) +
                           " parameters, not of " + std::to_string(parameters_.size()));
  }
  for (size_t p = 0; p < tensors.size(); ++p) {
    const at::Tensor& t = tensors[p];
    if (!t.defined()) continue;
    const ParameterShape& shape = parameters_[p].shape;
    const bool fits = t.layout() == at::kStrided && t.is_non_overlapping_and_dense() &&
                      static_cast<size_t>(t.numel()) == shape.elements &&
                      c10::isFloatingType(t.scalar_type());
    if (!fits) {
      return InvalidArgument("the second moments of " + shape.name + " are a tensor of " +
                             std::to_string(t.numel()) + " values of type " +
                             c10::toString(t.scalar_type()) + ", not a dense one of " +
                             std::to_string(shape.elements) + " floats");
    }
  }
  tensors_ = std::move(tensors);
  copies_.assign(tensors_.size(), {});
  return {};
}

SecondMoments MomentTensors::Now() {
  SecondMoments moments(tensors_.size());
  for (size_t p = 0; p < tensors_.size(); ++p) {
    const at::Tensor& t = tensors_[p];
    if (!t.defined()) continue;
    const bool readable = t.device().is_cpu() && t.scalar_type() == at::kFloat;
    if (!readable) {
      if (!copies_[p].defined()) {
        copies_[p] = at::empty_like(t, t.options().device(at::kCPU).dtype(at::kFloat));
      }
      copies_[p].copy_(t);
    }
    const at::Tensor& source = readable ? t : copies_[p];
    moments[p] = {source.const_data_ptr<float>(), static_cast<size_t>(source.numel())};
  }
  return moments;
}

}  // namespace elastiquant
