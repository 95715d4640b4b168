#include "elastiquant/theory/quadratic_rate.h"

#include <algorithm>
#include <cmath>
#include <complex>

namespace elastiquant::theory {
namespace {

// The largest |z| of z^2 - p z + q = 0.
double LargestRoot(double p, double q) {
  const std::complex<double> root = std::sqrt(std::complex<double>(p * p - 4 * q));
  return std::max(std::abs(p + root), std::abs(p - root)) / 2;
}

double RateOf(Recursion recursion, double lambda, double kept, double step) {
  const double mixed = 1 + step * (lambda - 1);
  switch (recursion) {
    case Recursion::kPlain:
      return std::abs(lambda - (1 - kept));
    case Recursion::kD2:
      return LargestRoot(lambda * (1 + kept), lambda * kept);
    case Recursion::kTracking:
      return LargestRoot(lambda * (1 + kept), lambda * (lambda - (1 - kept)));
    case Recursion::kReplicas:
      return std::abs(mixed * kept);
    case Recursion::kLate:
      return LargestRoot(kept, (1 - mixed) * kept);
  }
  return 1;
}

// The fixed point for minima that differ by 1.
double LeftOf(Recursion recursion, double lambda, double curvature, double step) {
  const double mixed = 1 + step * (lambda - 1);
  switch (recursion) {
    case Recursion::kPlain:
      return curvature / (1 - lambda + curvature);
    case Recursion::kD2:
    case Recursion::kTracking:
      return 0;
    case Recursion::kReplicas:
    case Recursion::kLate:
      return mixed * curvature / (1 - mixed * (1 - curvature));
  }
  return 1;
}

}  // namespace

QuadraticOutcome OnQuadratics(Recursion recursion, std::span<const double> eigenvalues,
                              double curvature, double step) {
  const auto mean = std::ranges::max_element(eigenvalues);
  QuadraticOutcome outcome;
  double squares = 0;
  for (auto lambda = eigenvalues.begin(); lambda != eigenvalues.end(); ++lambda) {
    if (lambda - eigenvalues.begin() == mean - eigenvalues.begin()) continue;
    outcome.rate = std::max(outcome.rate, RateOf(recursion, *lambda, 1 - curvature, step));
    squares += std::pow(LeftOf(recursion, *lambda, curvature, step), 2);
  }
  if (eigenvalues.size() > 1) {
    outcome.left = std::sqrt(squares / static_cast<double>(eigenvalues.size() - 1));
  }
  return outcome;
}

}  // namespace elastiquant::theory
