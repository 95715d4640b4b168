// Searching for the least of a function of one variable, and for where it changes sign.
#pragma once

#include <functional>

namespace elastiquant::theory {

struct Minimum {
  double at = 0;
  double value = 0;
};

// Of a function that falls and then rises over [low, high]: golden section, until the interval
// is 1e-14 of what it was. The value is one that was seen, so it is never below the minimum.
Minimum GoldenSection(const std::function<double(double)>& f, double low, double high);

// The point of [low, high] where f, positive on one side of it and negative on the other, is
// zero, to the last digits; an end if f has one sign.
double Bisect(const std::function<double(double)>& f, double low, double high);

}  // namespace elastiquant::theory
