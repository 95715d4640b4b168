// Finds a vector that comes close to the worst case: a lower bound that anybody can encode.
#pragma once

#include <cstddef>
#include <vector>

#include "elastiquant/codec/levels.h"

namespace elastiquant::theory {

// A vector with coordinates of two magnitudes, relative to their L_q norm of 1: `large_count`
// of `large` and `d - large_count` of `small`.
struct WorstVector {
  double d = 0;
  double large = 1, small = 0;
  double large_count = 1;
  double variance = 0;  // its exact E|Q(v)-v|^2 / |v|^2

  std::vector<float> Values() const;  // the large ones first; d must fit in memory
};

// Returns the best vector found among those of two magnitudes, which the dual's optimum has too
// (ours). The number of large ones is searched over integers (all up to 40, then some 10 %
// apart), and one magnitude over the intervals between levels; the other follows from the norm.
// The variance is at most WorstCaseVariance, and the difference is all that can be unknown of
// the true worst case. d >= 1, q >= 1. It takes 1 to 50 ms.
WorstVector FindWorstVector(const LevelSet& levels, double d, double q);

}  // namespace elastiquant::theory
