// Finds where a number lies among levels.
#pragma once

#include <cstddef>

#include "elastiquant/codec/levels.h"

namespace elastiquant::theory {

// The interval [low, high] of neighbouring levels that r lies in, 0 <= r <= 1. In a set without
// zero it is [-l_0, l_0] below the first level.
struct Interval {
  size_t index = 0;  // the index of `low` among the levels; that of -l_0 is 0
  double low = 0, high = 1;
};
Interval IntervalOf(const LevelSet& levels, double r);

// Returns (high - r)(r - low), which is the variance of rounding r at random so that its
// expectation is r.
inline double RoundingVariance(const Interval& in, double r) {
  return (in.high - r) * (r - in.low);
}

}  // namespace elastiquant::theory
