#include "elastiquant/theory/decentralised_rate.h"

#include <cmath>

namespace elastiquant::theory {

double ChocoStep(const MixingFactors& factors, double delta) {
  const double rho = factors.gap, beta2 = factors.distance * factors.distance;
  return rho * rho * delta /
         (16 * rho + rho * rho + 4 * beta2 + 2 * rho * beta2 - 8 * rho * delta);
}

double ChocoContraction(const MixingFactors& factors, double delta) {
  return 1 - factors.gap * factors.gap * delta / 82;
}

double ChocoBound(const SgdProblem& problem, const MixingFactors& factors, double delta,
                  size_t workers, double steps) {
  const double n = static_cast<double>(workers);
  const double c = 1 - ChocoContraction(factors, delta);
  return 4 * (problem.gap + problem.noise * problem.smoothness) / std::sqrt(n * (steps + 1)) +
         24 * problem.second_moment * n * problem.smoothness / (c * c * (steps + 1));
}

double DcdLargestVariance(const MixingFactors& factors) {
  return factors.gap * factors.gap / (4 * factors.distance * factors.distance);
}

bool AllowsD2(const MixingFactors& factors) {
  return factors.least_eigenvalue > -1.0 / 3 + 1e-12;
}

}  // namespace elastiquant::theory
