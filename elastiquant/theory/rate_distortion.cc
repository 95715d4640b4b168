#include "elastiquant/theory/rate_distortion.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "elastiquant/theory/quadrature.h"

namespace elastiquant::theory {
namespace {

// P(X > x).
double Tail(double x) { return std::erfc(x / std::numbers::sqrt2) / 2; }

// The entropy of a normal value of the variance that X + U has. That of X + U differs by its
// kurtosis only, whose square is of the order of step^8: by less than 1e-13 for a step of .1.
double FineDitherBits(double step) {
  const double variance = 1 + step * step / 12;
  return std::log2(2 * std::numbers::pi * std::numbers::e * variance) / 2 - std::log2(step);
}

// An integral over the density of X + U times the step, which is a probability p, by t, the
// distance from where the step ends. By symmetry it covers one half of them: from the middle,
// or from where all of X has been passed.
double CoarseDitherBits(double step) {
  const auto entropy = [&](double t) {
    const double p = Tail(t) - Tail(t + step);
    return p > 0 ? -p * std::log2(p) : 0;
  };
  constexpr double kReach = 12;  // standard deviations
  return 2 * Integrate(entropy, std::max(-step / 2, -kReach), kReach, 20000) / step;
}

}  // namespace

double GaussianLimit(double bits) { return 1 / std::expm1(2 * bits * std::numbers::ln2); }

double GaussianLimitBits(double nmse) { return std::log1p(1 / nmse) / (2 * std::numbers::ln2); }

double DecibelsAboveLimit(double nmse, double bits) {
  return 10 * std::log10(nmse / GaussianLimit(bits));
}

double DitherBits(double step) {
  // The difference of tails would lose the digits of a fine step.
  return step < .1 ? FineDitherBits(step) : CoarseDitherBits(step);
}

}  // namespace elastiquant::theory
