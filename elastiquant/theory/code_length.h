// How long the Elias-omega code of a quantised bucket is in expectation (ENCODE of QSGD and
// NUQSGD; coding/elias.h), whatever the bucket's values are. All lengths are bits, logarithms
// to base 2, d the length of a bucket, n its expected nonzeros.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "elastiquant/codec/elastic/elastic_format.h"

namespace elastiquant::theory {

// E|nonzeros of Q(v)| <= min(d, d^(1-1/q) / l_1) for levels whose smallest is l_1 (ours): a
// coordinate is rounded to 0 with probability max(0, 1 - r/l_1), and min(1, r/l_1) is concave
// in r^q, so equal coordinates have the most. Attained by them. Never above the published
// l_1^-2 + sqrt(d)/l_1 of q = 2 (QSGD Lemma 3.1, NUQSGD Lemma: 2^(2s) + 2^s sqrt(d)).
double NonzerosBound(double smallest, double d, double q);
double PublishedNonzerosBound(double smallest, double d);

// NUQSGD's Theorem on the code length with its o(1) left out, for levels 2^-s, ..., 1/2, 1
// (s = `inner`) under the L2 norm and n = 2^(2s) + 2^s sqrt(d):
//   N_Q = 32 + 3n + n log(d/n) + n log log(8 (2^(2s)+d) / n).
// As it stands it is false: equal coordinates need up to a tenth more (code_length_test).
// Absent unless n <= d/e, where it is claimed.
std::optional<double> PublishedCodeLength(int inner, double d);

// The same with constants of Elias omega, |omega(k)| <= 1 + 2.5 floor(log k), in place of o(1)
// (ours):
//   N_X = 32 + n (3 + 2.5 log(d/n) + 2.5 max(0, log(log(16 (2^(2s)+d) / n) / 2))), n <= d/e.
std::optional<double> ExplicitCodeLength(int inner, double d);

// Any levels, any norm, any d (ours). The code of a bucket is omega(nonzeros + 1) and, of each
// nonzero, omega(gap), a sign and omega(level). Let alpha + beta k be a line above |omega| over
// all k: the gaps add up to d at most, so they take alpha a nonzero and beta d. What remains is
// a sum over coordinates whose expectation c(r) is linear between levels; its largest value
// given that the r^q add up to 1 has the dual
//   min over lambda >= 0 of lambda + d max over r of c(r) - lambda r^q.
// The result is the least over the edges of |omega|'s concave hull. Norm and header are not in
// it. Holds in expectation over the rounding, for every bucket. Some ms at most.
double EliasBound(const LevelSet& levels, double d, double q);

// The expected length of a whole frame of the codec with this format, headers, norms and
// padding included, is at most this for messages of n values: exact for fixed width; for Elias
// by EliasBound; for rANS what MaxFrameBytes allows, which no message can exceed.
double ExpectedFrameBits(const ElasticFormat& format, size_t n);

}  // namespace elastiquant::theory
