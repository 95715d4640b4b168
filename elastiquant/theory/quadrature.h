// Integrates smooth functions.
#pragma once

#include <functional>

namespace elastiquant::theory {

// Returns the integral of f by Simpson's rule on `panels` panels, an even number.
inline double Integrate(const std::function<double(double)>& f, double low, double high,
                        int panels) {
  const double h = (high - low) / panels;
  double sum = f(low) + f(high);
  for (int i = 1; i < panels; ++i) sum += (i % 2 == 1 ? 4 : 2) * f(low + i * h);
  return sum * h / 3;
}

}  // namespace elastiquant::theory
