// Bounds on the variance of stochastic rounding to levels, which is the omega with E|Q(v)-v|^2
// <= omega |v|^2 for every v of d coordinates that share an L_q norm.
//
// The bound that codecs promise (Codec::NmseBound) is VarianceBound in codec/levels.h. This
// file has its parts, other published forms, and what they are worth against each other.
// Everywhere d >= 1 is the length of a bucket and 1 <= q <= infinity; |v| is the L2 norm. A
// bound for a bucket also holds for the whole message, since errors and squares of buckets add
// up.
#pragma once

#include "elastiquant/codec/levels.h"

namespace elastiquant::theory {

// The parts of VarianceBound, which is the smaller of between + below and grid (ours, after
// Theorem 4 of NUQSGD, Ramezani-Kebrya et al., JMLR 2021).
struct VarianceTerms {
  double ratio = 1;    // k, the largest l_{j+1} / l_j, j >= 1
  double between = 0;  // (k-1)^2 / (4k), of coordinates above the smallest level l_1
  double below = 0;    // of those under it
  double grid = 0;     // d^max(1, 2/q) gap^2 / 4 with the widest gap: all may lie in its middle
  // The d from which on `below` is l_1 d^(1/m) - 1 and no longer l_1^2 d^(2/m) / 4, where m =
  // min(q,2).
  double crossover = 0;
  double bound() const { return between + below < grid ? between + below : grid; }
};
VarianceTerms VarianceTermsOf(const LevelSet& levels, double d, double q);

// Returns the sum of `between` and of `below` in the form that ALQ publishes (Faghri et al.,
// NeurIPS 2020, Theorem 2), which is the least of K_t l_1^(2-t) d^((2-t)/m) over 0 <= t <= 1,
// where K_t = ((1-t)/(2-t))^(1-t) / (2-t). It equals `below` exactly where one branch is the
// least (t = 0 or t = 1), and is smaller by some per cent near the crossover.
double AlqVarianceBound(const LevelSet& levels, double d, double q);

// Returns the bound min(d/s^2, sqrt(d)/s) of QSGD, Lemma 3.1 (Alistarh et al., NeurIPS 2017),
// for `steps` = s uniform steps under the L2 norm. The grid term is a quarter of its first
// part.
double QsgdVarianceBound(int steps, double d);

// Returns the variance of the vector of d equal coordinates: l_1 d^(1/q) - 1 if d^(-1/q) <=
// l_1, else 0. No scheme that rounds to neighbouring levels, of which the smallest is l_1, can
// have a lower worst case, whatever its other levels are.
double EqualVectorVariance(double smallest, double d, double q);

}  // namespace elastiquant::theory
