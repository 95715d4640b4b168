// Where a number lies among levels.
#pragma once

#include <cstddef>

#include "elastiquant/codec/levels.h"

namespace elastiquant::theory {

// The interval [low, high] of neighbouring levels that r lies in, 0 <= r <= 1; [-l_0, l_0]
// below the first level of a set without zero.
struct Interval {
  size_t index = 0;  // of `low` among the levels; 0 of -l_0 too
  double low = 0, high = 1;
};
Interval IntervalOf(const LevelSet& levels, double r);

// (high - r)(r - low): the variance of rounding r at random so that its expectation is r.
inline double RoundingVariance(const Interval& in, double r) {
  return (in.high - r) * (r - in.low);
}

}  // namespace elastiquant::theory
