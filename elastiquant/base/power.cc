#include "elastiquant/base/power.h"

#include <cmath>
#include <limits>

namespace elastiquant {

// With m = (1 + t) / (1 - t) in [sqrt(1/2), sqrt(2)] and |t| < .1716,
// ln m = 2 (t + t^3/3 + t^5/5 + ...), of which the first 12 terms are enough.
double PortableLog2(double x) {
  constexpr double kTwoOverLn2 = 0x1.71547652b82fep+1, kRootHalf = 0x1.6a09e667f3bcdp-1;
  int exponent;
  double m = std::frexp(x, &exponent);  // in [1/2, 1)
  if (m < kRootHalf) {
    m *= 2;
    --exponent;
  }
  const double t = (m - 1) / (m + 1), square = t * t;
  double series = 0;
  for (int k = 23; k >= 3; k -= 2) series = (series + 1.0 / k) * square;
  return exponent + kTwoOverLn2 * (t + t * series);
}

// 2^(whole + f) with |f| <= 1/2: the first 17 terms of e^(f ln 2).
double PortableExp2(double x) {
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  if (x < -1100) return 0;
  if (x > 1100) return std::numeric_limits<double>::infinity();
  const double whole = std::floor(x + 0.5), r = (x - whole) * kLn2;
  double series = 1;
  for (int k = 16; k >= 1; --k) series = 1 + series * r / k;
  return std::ldexp(series, static_cast<int>(whole));
}

double PortablePow(double x, double y) {
  return x == 0 ? 0 : PortableExp2(y * PortableLog2(x));
}

}  // namespace elastiquant
