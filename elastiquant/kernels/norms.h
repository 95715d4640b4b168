// Computes norms of a bucket, and products of two. Sums run in 16 virtual lanes of doubles,
// coordinate i in lane i mod 16, and the lanes are added in one fixed tree, so that every
// target gives the same result to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace elastiquant {

// Returns the bits of the float max |v_i|, or 0 if n is 0. They are at least kNonFiniteBits if
// some v_i is NaN or infinite.
inline constexpr uint32_t kNonFiniteBits = 0x7F800000u;
uint32_t AbsMaxBits(const float* v, size_t n);

// Returns whether no value is NaN or infinite. It reads all values with SIMD, which is faster
// than to look for the first bad one.
inline bool AllFinite(std::span<const float> values) {
  return AbsMaxBits(values.data(), values.size()) < kNonFiniteBits;
}

// Return the sum of |v_i| and that of v_i^2. Doubles hold both for any finite floats (squares
// lie between 2^-298 and 2^256), so the result is NaN or infinite only if some v_i is.
double SumAbs(const float* v, size_t n);
double SumSquares(const float* v, size_t n);

// Returns the sum of those |v_i| that are below t.
double SumAbsBelow(const float* v, size_t n, float t);

// Return the sum of v_i, the sum of those v_i that are at least t, and their number. NaN is
// never at least t.
double Sum(const float* v, size_t n);
double SumAtLeast(const float* v, size_t n, float t);
size_t CountAtLeast(const float* v, size_t n, float t);

// Returns the sum of a_i * b_i. Both must be of the same size.
double Dot(std::span<const float> a, std::span<const float> b);

// Returns |a - scale * b|^2. Both must be of the same size.
double SquaredDistance(std::span<const float> a, std::span<const float> b, double scale = 1);

// Returns the sum of (|v_i| * scale)^q, added one after the other. q >= 1, and all |v_i| *
// scale <= 1.
double SumPowers(const float* v, size_t n, double scale, double q);

}  // namespace elastiquant
