// TernGrad with a scale for each tensor, as published (Wen et al., NeurIPS 2017).
#pragma once

#include <memory>
#include <span>

#include "elastiquant/codec/codec.h"
#include "elastiquant/coding/index_coding.h"

namespace elastiquant {

// Makes terngrad:bucket=tensor. Each tensor is cut off at `clip` of its standard deviations, or
// nowhere if `clip` is 0, and then rounded to -s, 0 or s, where s is its largest magnitude.
// Frames are those of an elastic codec with the levels 0 and 1 whose buckets are the tensors.
// Workers send them to all, so that every scale is a worker's own. Without shapes the message
// is one tensor.
Result<std::shared_ptr<const Codec>> MakeTernGradByTensor(float clip, IndexCoding coding);

}  // namespace elastiquant
