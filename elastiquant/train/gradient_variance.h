// The variance of estimates of a gradient at fixed weights (`train --measure-variance`).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace elastiquant {

struct GradientVariance {
  // The mean over coordinates of the estimates' variance around their own mean.
  double variance = 0;
  // The mean over coordinates of sum (g - mean)^2 / (sum g^2 + 1e-7), over the estimates.
  double normalised = 0;
};

// Takes estimate after estimate, each as a vector of the same length or piece by piece. Both
// numbers are defined as in the public code that follows Faghri et al., "Adaptive gradient
// quantization for data-parallel SGD", NeurIPS 2020; the sum over G estimates is divided by G.
class GradientVarianceSums {
 public:
  explicit GradientVarianceSums(size_t coordinates)
      : sums_(coordinates), squares_(coordinates) {}

  // Adds an estimate's values of the coordinates from `offset` on.
  void Add(size_t offset, std::span<const float> values);
  // Returns what `estimates` of them, which is at least 1, have come to.
  GradientVariance Of(int estimates) const;

 private:
  std::vector<double> sums_, squares_;
};

}  // namespace elastiquant
