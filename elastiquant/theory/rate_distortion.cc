#include "elastiquant/theory/rate_distortion.h"

#include <cmath>
#include <numbers>

#include "elastiquant/theory/quadrature.h"

namespace elastiquant::theory {
namespace {

// P(X > x).
double Tail(double x) { return std::erfc(x / std::numbers::sqrt2) / 2; }

}  // namespace

double GaussianLimit(double bits) { return 1 / std::expm1(2 * bits * std::numbers::ln2); }

double GaussianLimitBits(double nmse) { return std::log1p(1 / nmse) / (2 * std::numbers::ln2); }

double DecibelsAboveLimit(double nmse, double bits) {
  return 10 * std::log10(nmse / GaussianLimit(bits));
}

double DitherBits(double step) {
  // The density of X + U times the step: a probability. By symmetry only x >= 0, where the
  // difference of tails loses no digits.
  const auto mass = [&](double x) { return Tail(x - step / 2) - Tail(x + step / 2); };
  const auto entropy = [&](double x) {
    const double p = mass(x);
    return p > 0 ? -p * std::log2(p) : 0;
  };
  constexpr double kReach = 12;  // standard deviations
  return 2 * Integrate(entropy, 0, step / 2 + kReach, 20000) / step;
}

}  // namespace elastiquant::theory
