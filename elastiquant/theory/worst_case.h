// Computes the exact worst-case variance of stochastic rounding to a set of levels, by duality.
#pragma once

#include "elastiquant/codec/levels.h"

namespace elastiquant::theory {

// Returns an upper bound on the largest E|Q(v)-v|^2 / |v|^2 that any v of d coordinates can
// have.
//
// With r = |v_i| / |v|_q and var(r) = (high - r)(r - low), the worst case is an integer program
// (how many coordinates lie between which levels) with the constraint that the r^q add up to 1.
// Weak duality with one multiplier mu for that constraint gives (ours)
//   V = min over mu >= 0 of max over r in (0, 1] of (var(r) + mu (r^q - 1/d)) / r^2,
// which is convex in mu; if q is infinite, r^q is 1 at r = 1 and 0 below. For q = 2 it is the
// dual
//   min over lambda >= 0 of lambda + d max(0, max over r of var(r) - lambda r^2)
// of the quadratically constrained program that relaxes the integers (as NUQSGD's analysis
// does, Ramezani-Kebrya et al., JMLR 2021, section on the worst case).
//
// The result is never below the true worst case, whatever mu was found. It is above it only by
// what rounding the counts to integers costs, which WorstVector measures, and it is never above
// VarianceBound. For q = infinity it is exact for every d: (d-1) max over r of var(r) - V r^2.
//
// d >= 1 and q >= 1. For d = 1 the result is 0, since the norm is the coordinate. It takes some
// 0.1 ms for q of 1, 2 and infinity and 128 levels, and some 10 ms for other q.
double WorstCaseVariance(const LevelSet& levels, double d, double q);

// Returns the p of {.001, ..., .999} whose exponential levels (2^(bits-1) of them) have the
// least WorstCaseVariance, searched in steps of .02 and then of .001 around the best; or 0.5
// for 2 bits, where p makes no difference. (OptimalRatio in codec/levels.h minimises the bound,
// which is what codecs do with p=auto.) It takes some 20 ms.
float ExactOptimalRatio(int bits, double d, double q);

}  // namespace elastiquant::theory
