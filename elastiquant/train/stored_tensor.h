// Converts libtorch's tensors to those of safetensors files, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "elastiquant/runs/safetensors.h"

namespace elastiquant {

// Names that begin with this prefix are no part of the model.
inline constexpr char kOptimizerPrefix[] = "optimizer.";

// Returns the dtype and shape that ToStored gives the tensor, such as "F32 [16, 3, 3, 3]".
std::string DescribeAsStored(const at::Tensor& tensor);

// Copies a contiguous tensor of fp32, fp16, bf16 or int64.
StoredTensor ToStored(const at::Tensor& tensor);

// Returns a view of a tensor of F32, F16, BF16 or I64, which may be copied from while `stored`
// lives.
at::Tensor ViewOf(const StoredTensor& stored);

}  // namespace elastiquant
