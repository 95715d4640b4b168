#include "elastiquant/policy/minibatch_noise.h"

#include <algorithm>
#include <limits>

namespace elastiquant::policy {

double MinibatchNoise(std::span<const double> weights, double mean_of_squares,
                      double square_of_mean, double mean_error) {
  double independent = 1;
  for (const double p : weights) independent -= p * p;
  if (!(independent > 1e-9)) return std::numeric_limits<double>::quiet_NaN();
  return std::max(0.0, mean_of_squares - (square_of_mean - mean_error)) / independent;
}

}  // namespace elastiquant::policy
