// The zero-less quantiser's bound, for those who choose its levels.
#pragma once

#include <cstddef>

namespace elastiquant {

// The bound on the NMSE of stochastic rounding to +-l_1 ... +-1 of buckets of d coordinates
// under an L2 or Linf norm: values above l_1 cost at most (k-1)^2/(4k) of their squares, with k
// the largest ratio of neighbouring levels; each below it l_1^2 - r^2.
double ZerolessBound(double smallest, double largest_ratio, double d);

// The p in {.001, ..., .999} whose levels p^(half-1), ..., p, 1 have the least bound.
float ZerolessRatio(size_t half, double d);

}  // namespace elastiquant
