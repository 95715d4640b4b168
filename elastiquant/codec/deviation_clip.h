// Where TernGrad cuts off the values of a tensor or of a bucket (Wen et al., NeurIPS 2017,
// section 3.3: gradient clipping).
#pragma once

#include <span>

namespace elastiquant {

// `deviations` standard deviations of the population. The largest float if all values are the
// same, because nothing stands out then, or if that is below it.
float DeviationClip(std::span<const float> values, float deviations);

}  // namespace elastiquant
