// Level sets of the elastic quantiser: 0 = l_0 < l_1 < ... < l_last = 1, the sizes (relative to
// the bucket's norm) that a coordinate is rounded to. A set without zero begins with l_0 > 0:
// what is smaller is rounded to -l_0 or l_0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"
#include "elastiquant/kernels/level_table.h"

namespace elastiquant {

// Stable numbers: they travel in frames.
enum class LevelFamily : uint8_t {
  kExponential = 0,
  kUniform = 1,
  kExplicit = 2,  // listed, but for the 0
  kZeroless = 3,  // listed, without 0
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

// The levels that `bits` bits can name, one of them being the sign's: 2^(bits-1).
constexpr size_t LevelsOfBits(int bits) { return size_t{1} << (bits - 1); }
// The exponential family's number s of levels between 0 and 1.
constexpr int InnerLevels(int bits) { return (1 << (bits - 1)) - 2; }

// j / (2^(bits-1) - 1).
LevelSet UniformLevels(int bits);

// 0, p^s, ..., p^2, p, 1 by repeated multiplication (the same floats on every machine); p in
// (0, 1). Fails with kInvalidArgument if the levels are not all different and normal floats.
Result<LevelSet> ExponentialLevels(int bits, float p);

// 0 and then `upper`, which must increase, end with 1 and fit in `bits`: kInvalidArgument if
// not.
Result<LevelSet> ExplicitLevels(int bits, std::span<const float> upper);

// `levels`, the first of which is above 0, in place of 0; otherwise the same.
Result<LevelSet> LevelsWithoutZero(int bits, std::span<const float> levels);

// The bound eps_Q on E|Q(v)-v|^2 / |v|^2 over all v of d coordinates, for stochastic rounding
// to levels with smallest nonzero level l_1 and largest ratio k = max l_{j+1}/l_j, j >= 1,
// under the L_q norm, 1 <= q <= infinity: with m = min(q, 2),
//   (k-1)^2/(4k) + l_1^2 d^(2/m) / 4 while l_1 d^(1/m) < 2, else + l_1 d^(1/m) - 1.
// It generalises Theorem 4 of NUQSGD (Ramezani-Kebrya et al., JMLR 2021).
double VarianceBound(double smallest, double largest_ratio, double d, double q);

// What d coordinates cost in the middle of a gap each: d^max(1, 2/q) gap^2 / 4. For q < 2 the
// norm may exceed the L2 norm, |v|_q^2 <= d^(2/q - 1) |v|_2^2.
double GridVarianceBound(double widest_gap, double d, double q);

// The smaller of the two, for these levels. Without zero the smallest level's part in the first
// is that in the second, of a gap of 2 l_0.
double VarianceBound(const LevelSet& levels, double d, double q);

double LargestRatio(const LevelSet& levels);  // k, at least 1
double WidestGap(const LevelSet& levels);     // the largest l_{j+1} - l_j, j >= 0; or 2 l_0

// The elastic rule: the p in {.001, .002, ..., .999} whose exponential levels (`inner` of them
// between 0 and 1) have the least VarianceBound. Thousandths, so that machines with another
// libm agree.
float OptimalRatio(int inner, double d, double q);

}  // namespace elastiquant
