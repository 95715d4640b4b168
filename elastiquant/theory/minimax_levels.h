// Finds the levels with the least worst case, which is a limit for all level sets of that size.
#pragma once

#include "elastiquant/base/status.h"
#include "elastiquant/codec/levels.h"

namespace elastiquant::theory {

struct MinimaxLevels {
  LevelSet levels;
  double variance = 0;  // the WorstCaseVariance of the levels
};

// Returns, of all sets of 2^(bits-1) levels, the one with the least WorstCaseVariance (ours).
// Given mu and a target V, the dual's constraint of an interval holds up to equality in
//   (low + high + u)^2 = 4 C (low high + mu/d),
// where (u, C) = (0, 1+V-mu) for q = 2, (mu, 1+V) for q = 1, and (0, 1+V) with mu = V d/(d-1)
// for q infinite. So each level is as far from the one below as that allows, starting from 0,
// and V is feasible if the last one reaches 1. V is bisected, and mu is searched. How far
// exponential or uniform levels lie above it is the price of their simplicity.
//
// bits is 2 to 8, and d >= 2. Fails with kInvalidArgument for others, and for other q than 1, 2
// and infinity.
Result<MinimaxLevels> FindMinimaxLevels(int bits, double d, double q);

}  // namespace elastiquant::theory
