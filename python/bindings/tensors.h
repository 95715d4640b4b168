// Python's tensors as the flat floats in the host's memory that codecs take and give.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <span>

#include "elastiquant/base/status.h"

namespace elastiquant::python {

// The tensor that `object` is. TypeError, which names `what`, if it is none.
at::Tensor TensorOf(pybind11::handle object, const char* what);

// TypeError, which says what to do, unless the tensor is dense and real floating point.
void CheckFloats(const at::Tensor& tensor, const char* what);

// The tensor's values, in C order, as a contiguous fp32 tensor on the host: the tensor itself
// if it is that, and a copy otherwise (of another type, strided, on a GPU). Outside autograd.
// Needs no GIL. After CheckFloats.
at::Tensor HostFloats(const at::Tensor& tensor);

// What is wrong with values that HostFloats made of `given`: `status`, unless it is that one is
// infinite which is finite in `given`, but beyond fp32. Needs no GIL.
Status NamingValuesBeyondFp32(Status status, const at::Tensor& given);

// The values of what HostFloats gave.
std::span<float> Span(const at::Tensor& floats);

// Writes flat fp32 values of the host into `out`, whatever its shape, type and device. Needs no
// GIL.
void CopyInto(const at::Tensor& out, const at::Tensor& floats);

}  // namespace elastiquant::python
