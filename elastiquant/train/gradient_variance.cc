#include "elastiquant/train/gradient_variance.h"

#include <algorithm>

namespace elastiquant {

void GradientVarianceSums::Add(size_t offset, std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    sums_[offset + i] += value;
    squares_[offset + i] += value * value;
  }
}

GradientVariance GradientVarianceSums::Of(int estimates) const {
  constexpr double kTiny = 1e-7;
  GradientVariance found;
  for (size_t i = 0; i < sums_.size(); ++i) {
    // Rounding may leave less than nothing.
    const double around_mean = std::max(0.0, squares_[i] - sums_[i] * sums_[i] / estimates);
    found.variance += around_mean / estimates;
    found.normalised += around_mean / (squares_[i] + kTiny);
  }
  const auto coordinates = static_cast<double>(std::max<size_t>(sums_.size(), 1));
  return {found.variance / coordinates, found.normalised / coordinates};
}

}  // namespace elastiquant
