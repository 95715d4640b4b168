// Says how long the Elias-omega code of a quantised bucket is in expectation (ENCODE of QSGD
// and NUQSGD; coding/elias.h), whatever the bucket's values are. All lengths are bits, and
// logarithms are to base 2; d is the length of a bucket, and n the expected number of its
// nonzeros.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "elastiquant/codec/elastic/elastic_format.h"

namespace elastiquant::theory {

// Return bounds on the expected number of nonzeros of Q(v) for levels whose smallest is l_1.
// NonzerosBound is min(d, d^(1-1/q) / l_1) (ours): a coordinate is rounded to 0 with
// probability max(0, 1 - r/l_1), and min(1, r/l_1) is concave in r^q, so equal coordinates have
// the most nonzeros and attain the bound. It is never above the published l_1^-2 + sqrt(d)/l_1
// of q = 2 (QSGD Lemma 3.1, NUQSGD Lemma: 2^(2s) + 2^s sqrt(d)).
double NonzerosBound(double smallest, double d, double q);
double PublishedNonzerosBound(double smallest, double d);

// Returns what NUQSGD's Theorem on the code length says when its o(1) is left out, for levels
// 2^-s, ..., 1/2, 1 (s = `inner`) under the L2 norm and n = 2^(2s) + 2^s sqrt(d):
//   N_Q = 32 + 3n + n log(d/n) + n log log(8 (2^(2s)+d) / n).
// As it stands it is false: equal coordinates need up to a tenth more (code_length_test). The
// result is absent unless n <= d/e, where the theorem is claimed.
std::optional<double> PublishedCodeLength(int inner, double d);

// Returns the same with the constants of Elias omega, |omega(k)| <= 1 + 2.5 floor(log k), in
// place of o(1) (ours):
//   N_X = 32 + n (3 + 2.5 log(d/n) + 2.5 max(0, log(log(16 (2^(2s)+d) / n) / 2))), n <= d/e.
std::optional<double> ExplicitCodeLength(int inner, double d);

// Returns a bound on the expected code length of a bucket for any levels, any norm and any d
// (ours). The code of a bucket is omega(nonzeros + 1) and, for each nonzero, omega(gap), a sign
// and omega(level). Let alpha + beta k be a line above |omega| over all k: the gaps add up to d
// at most, so they take alpha for each nonzero and beta d in all. What remains is a sum over
// coordinates whose expectation c(r) is linear between levels; its largest value given that the
// r^q add up to 1 has the dual
//   min over lambda >= 0 of lambda + d max over r of c(r) - lambda r^q.
// The result is the least over the edges of |omega|'s concave hull. It does not include norm
// and header. It holds in expectation over the rounding, for every bucket. It takes some ms at
// most.
double EliasBound(const LevelSet& levels, double d, double q);

// Returns a bound on the expected length of a whole frame of n values of the codec with this
// format, with headers, norms and padding. It is exact for fixed width. For Elias it comes from
// the bound of EliasBound, unless buckets end with tensors. For all others it is what
// MaxFrameBytes allows, which no message can exceed.
double ExpectedFrameBits(const ElasticFormat& format, size_t n);

}  // namespace elastiquant::theory
