// Norms of a bucket. Sums run in 16 virtual lanes of doubles, coordinate i in lane i mod 16,
// and the lanes are added in one fixed tree: every target gives the same result to the bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elastiquant {

// The bits of max |v_i| (0 if n is 0). At least kNonFiniteBits if some v_i is NaN or infinite.
inline constexpr uint32_t kNonFiniteBits = 0x7F800000u;
uint32_t AbsMaxBits(const float* v, size_t n);

// Sum |v_i| and sum v_i^2. Doubles hold both for any finite floats (squares from 2^-298 to
// 2^256), so the result is NaN or infinite only if some v_i is.
double SumAbs(const float* v, size_t n);
double SumSquares(const float* v, size_t n);

// Sum of the |v_i| < t.
double SumAbsBelow(const float* v, size_t n, float t);

// Sum v_i; sum of the v_i >= t, and their number. NaN is in no v_i >= t.
double Sum(const float* v, size_t n);
double SumAtLeast(const float* v, size_t n, float t);
size_t CountAtLeast(const float* v, size_t n, float t);

// Sum (|v_i| * scale)^q for 1 <= q, with |v_i| * scale <= 1, one after the other.
double SumPowers(const float* v, size_t n, double scale, double q);

}  // namespace elastiquant
