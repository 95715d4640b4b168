#include "python/bindings/tensors.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

namespace py = pybind11;

namespace elastiquant::python {

at::Tensor TensorOf(py::handle object, const char* what) {
  if (THPVariable_Check(object.ptr())) return THPVariable_Unpack(object.ptr());
  throw py::type_error(std::string(what) + " must be a torch.Tensor, not " +
                       Py_TYPE(object.ptr())->tp_name + "; torch.as_tensor() makes one");
}

void CheckFloats(const at::Tensor& tensor, const char* what) {
  const std::string name(what);
  if (!at::isFloatingType(tensor.scalar_type())) {
    throw py::type_error(name + " has dtype " + c10::toString(tensor.scalar_type()) +
                         "; codecs take floating point: convert it, for example with "
                         ".float()");
  }
  if (tensor.layout() != at::kStrided) {
    throw py::type_error(name + " is not dense; give .to_dense(), or the dense tensors in it");
  }
  // A fake tensor may claim a device of its own, but none has memory.
  if (tensor.numel() > 0 && (!tensor.has_storage() || tensor.storage().data() == nullptr)) {
    throw py::type_error(name +
                         " has no values of its own: it is a meta or fake tensor, or wraps "
                         "others as a DTensor does, whose .to_local() to give");
  }
}

at::Tensor HostFloats(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return tensor.detach().to(at::kCPU, at::kFloat).contiguous().resolve_neg();
}

Status NamingValuesBeyondFp32(Status status, const at::Tensor& given) {
  // No other type has finite values that fp32 has not.
  if (status.code() != StatusCode::kNonFinite || given.scalar_type() != at::kDouble) {
    return status;
  }
  const at::NoGradGuard no_grad;
  const at::Tensor host = given.detach().to(at::kCPU).contiguous().resolve_neg();
  const std::span<const double> values(host.data_ptr<double>(),
                                       static_cast<size_t>(host.numel()));
  size_t i = 0;
  while (i < values.size() && std::isfinite(static_cast<float>(values[i]))) ++i;
  if (i == values.size() || !std::isfinite(values[i])) return status;
  char value[32];
  std::snprintf(value, sizeof(value), "%g", values[i]);
  return NonFinite("the value at coordinate " + std::to_string(i) + " is " + value +
                   ", beyond fp32, which codecs take: its largest is 3.40282e+38");
}

std::span<float> Span(const at::Tensor& floats) {
  return {floats.data_ptr<float>(), static_cast<size_t>(floats.numel())};
}

void CopyInto(const at::Tensor& out, const at::Tensor& floats) {
  // A thread of ours is in no mode of the caller's, and an inference tensor may change in its
  // own mode alone.
  std::optional<c10::InferenceMode> inference;
  if (out.is_inference()) inference.emplace();
  const at::NoGradGuard no_grad;
  out.copy_(floats.view(out.sizes()));
}

}  // namespace elastiquant::python
