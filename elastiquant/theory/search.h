// Searches for the least value of a function of one variable, and for where it changes sign.
#pragma once

#include <functional>

namespace elastiquant::theory {

struct Minimum {
  double at = 0;
  double value = 0;
};

// Returns the minimum of a function that falls and then rises over [low, high]. It searches by
// golden section, until the interval is 1e-14 of what it was. The value is one that f has
// taken, so it is never below the minimum.
Minimum GoldenSection(const std::function<double(double)>& f, double low, double high);

// Returns the point of [low, high] where f, positive on one side of it and negative on the
// other, is zero, to the last digits. If f has the same sign at both ends, returns that end
// where |f| is smaller.
double Bisect(const std::function<double(double)>& f, double low, double high);

}  // namespace elastiquant::theory
