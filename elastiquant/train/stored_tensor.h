// libtorch's tensors as safetensors files have them, and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "elastiquant/runs/safetensors.h"

namespace elastiquant {

// Names that begin with it are no part of the model.
inline constexpr char kOptimizerPrefix[] = "optimizer.";

// The dtype and shape that ToStored gives it: "F32 [16, 3, 3, 3]".
std::string DescribeAsStored(const at::Tensor& tensor);

// A contiguous tensor of fp32 or int64.
StoredTensor ToStored(const at::Tensor& tensor);

// Of F32, F16, BF16 or I64, to be copied from while `stored` lives.
at::Tensor ViewOf(const StoredTensor& stored);

}  // namespace elastiquant
