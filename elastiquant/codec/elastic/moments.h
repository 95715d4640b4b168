// What the levels of a distribution of magnitudes are fitted by.
#pragma once

namespace elastiquant {

// The integrals of dF, r dF and r^2 dF over an interval of magnitudes r, where F is their
// distribution function.
struct Moments {
  double mass = 0, first = 0, second = 0;
  Moments operator-(const Moments& other) const {
    return {mass - other.mass, first - other.first, second - other.second};
  }
};

// Returns the variance that rounding to the levels a and c, without bias, adds to the
// magnitudes between them, which have these moments: the integral of (c - r)(r - a) dF.
inline double RoundingVariance(const Moments& between, double a, double c) {
  return (a + c) * between.first - between.second - a * c * between.mass;
}

}  // namespace elastiquant
