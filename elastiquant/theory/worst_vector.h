// A vector that comes close to the worst case: a lower bound that anybody can encode.
#pragma once

#include <cstddef>
#include <vector>

#include "elastiquant/codec/levels.h"

namespace elastiquant::theory {

// Coordinates of two magnitudes, relative to their L_q norm of 1: `large_count` of `large` and
// `d - large_count` of `small`.
struct WorstVector {
  double d = 0;
  double large = 1, small = 0;
  double large_count = 1;
  double variance = 0;  // E|Q(v)-v|^2 / |v|^2 of it, exactly

  std::vector<float> Values() const;  // large ones first; d must fit in memory
};

// The best found among vectors of two magnitudes, which the dual's optimum has too (ours). The
// number of large ones is searched over integers, one magnitude over the intervals between
// levels; the other follows from the norm. Its variance is at most WorstCaseVariance, and the
// difference is all that can be unknown of the true worst case. d >= 1, q >= 1; 1 to 50 ms.
WorstVector FindWorstVector(const LevelSet& levels, double d, double q);

}  // namespace elastiquant::theory
