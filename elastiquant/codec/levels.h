// Level sets of the elastic quantiser: 0 = l_0 < l_1 < ... < l_last = 1 are the sizes, relative
// to the bucket's norm, that a coordinate is rounded to. A set without zero begins with l_0 >
// 0, and what is smaller than that is rounded to -l_0 or l_0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"
#include "elastiquant/kernels/level_table.h"

namespace elastiquant {

// The numbers travel in frames, and so must never change.
enum class LevelFamily : uint8_t {
  kExponential = 0,
  kUniform = 1,
  kExplicit = 2,  // a frame lists them, except for the 0
  kZeroless = 3,  // a frame lists them, and 0 is not among them
};

constexpr bool IsListed(LevelFamily family) {
  return family == LevelFamily::kExplicit || family == LevelFamily::kZeroless;
}

struct LevelSet {
  std::array<float, kMaxLevels> values{};
  size_t count = 0;

  std::span<const float> span() const { return {values.data(), count}; }
  bool has_zero() const { return values[0] == 0; }
};

// Returns how many levels `bits` bits can name, of which one is the sign's: 2^(bits-1).
constexpr size_t LevelsOfBits(int bits) { return size_t{1} << (bits - 1); }
// Returns s, the number of levels between 0 and 1 that the exponential family has.
constexpr int InnerLevels(int bits) { return (1 << (bits - 1)) - 2; }

// Returns the levels j / (2^(bits-1) - 1).
LevelSet UniformLevels(int bits);

// Returns 0, p^s, ..., p^2, p, 1, computed by repeated multiplication, so that every machine
// has the same floats; p is in (0, 1). Fails with kInvalidArgument unless the levels are all
// different and normal floats.
Result<LevelSet> ExponentialLevels(int bits, float p);

// Returns 0 and then `upper`. Fails with kInvalidArgument unless `upper` increases, ends with 1
// and fits in `bits`.
Result<LevelSet> ExplicitLevels(int bits, std::span<const float> upper);

// Returns `levels`, the first of which must be above 0 and takes the place of 0. Otherwise it
// does as ExplicitLevels does.
Result<LevelSet> LevelsWithoutZero(int bits, std::span<const float> levels);

// Returns the bound eps_Q on E|Q(v)-v|^2 / |v|^2 over all v of d coordinates, for stochastic
// rounding to levels with smallest nonzero level l_1 and largest ratio k = max l_{j+1}/l_j, j
// >= 1, under the L_q norm, 1 <= q <= infinity: with m = min(q, 2),
//   (k-1)^2/(4k) + l_1^2 d^(2/m) / 4 while l_1 d^(1/m) < 2, else + l_1 d^(1/m) - 1.
// It generalises Theorem 4 of NUQSGD (Ramezani-Kebrya et al., JMLR 2021).
double VarianceBound(double smallest, double largest_ratio, double d, double q);

// Returns what d coordinates cost if each lies in the middle of a gap: d^max(1, 2/q) gap^2 / 4.
// For q < 2 the norm may exceed the L2 norm: |v|_q^2 <= d^(2/q - 1) |v|_2^2.
double GridVarianceBound(double widest_gap, double d, double q);

// Returns the smaller of the two bounds for these levels. In a set without zero, the smallest
// level adds to the first bound what a gap of 2 l_0 adds to the second.
double VarianceBound(const LevelSet& levels, double d, double q);

double LargestRatio(const LevelSet& levels);  // k, at least 1
double WidestGap(const LevelSet& levels);     // the largest l_{j+1} - l_j, j >= 0; or 2 l_0

// Returns the p of the elastic rule: that in {.001, .002, ..., .999} whose exponential levels,
// `inner` of them between 0 and 1, have the least VarianceBound. It is a multiple of a
// thousandth, so that machines with another libm agree.
float OptimalRatio(int inner, double d, double q);

}  // namespace elastiquant
