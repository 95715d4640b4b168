#include "elastiquant/theory/search.h"

#include <cmath>

namespace elastiquant::theory {

Minimum GoldenSection(const std::function<double(double)>& f, double low, double high) {
  constexpr double kRatio = 0.6180339887498949;
  double a = high - kRatio * (high - low), b = low + kRatio * (high - low);
  double fa = f(a), fb = f(b);
  for (int i = 0; i < 68; ++i) {
    if (fa < fb) {
      high = b;
      b = a;
      fb = fa;
      fa = f(a = high - kRatio * (high - low));
    } else {
      low = a;
      a = b;
      fa = fb;
      fb = f(b = low + kRatio * (high - low));
    }
  }
  return fa < fb ? Minimum{a, fa} : Minimum{b, fb};
}

double Bisect(const std::function<double(double)>& f, double low, double high) {
  const double at_low = f(low), at_high = f(high);
  if ((at_low > 0) == (at_high > 0)) return std::abs(at_low) < std::abs(at_high) ? low : high;
  for (int i = 0; i < 200; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) break;
    ((f(middle) > 0) == (at_low > 0) ? low : high) = middle;
  }
  return low + (high - low) / 2;
}

}  // namespace elastiquant::theory
