#include "elastiquant/codec/deviation_clip.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "elastiquant/kernels/norms.h"

namespace elastiquant {

float DeviationClip(std::span<const float> values, float deviations) {
  const double d = static_cast<double>(values.size());
  const double mean = Sum(values.data(), values.size()) / d;
  const double variance = SumSquares(values.data(), values.size()) / d - mean * mean;
  const double clip = static_cast<double>(deviations) * std::sqrt(std::max(variance, 0.0));
  constexpr float kMost = std::numeric_limits<float>::max();
  const bool stands_out = clip > 0 && variance > mean * mean * 0x1p-40 && clip < kMost;
  return stands_out ? static_cast<float>(clip) : kMost;
}

}  // namespace elastiquant
