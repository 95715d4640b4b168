// Where TernGrad cuts off the values of a tensor or of a bucket (Wen et al., NeurIPS 2017,
// section 3.3: gradient clipping).
#pragma once

#include <span>

namespace elastiquant {

// Returns `deviations` standard deviations of the values, taken as the whole population.
// Returns the largest float if all values are the same, because nothing stands out then, or if
// the result would be larger still.
float DeviationClip(std::span<const float> values, float deviations);

}  // namespace elastiquant
