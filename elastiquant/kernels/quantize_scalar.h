// Quantises one coordinate in each way. This is the definition that the SIMD loops must match
// to the bit, and what they use for the last few coordinates.
#pragma once

#include <bit>
#include <cstdint>

#include "elastiquant/kernels/quantize.h"

namespace elastiquant::scalar {

// Returns the code of an index and the sign of v; index 0 has no sign.
inline uint8_t SignedCode(float v, uint32_t index, int bits) {
  const uint32_t sign = index == 0 ? 0 : std::bit_cast<uint32_t>(v) >> 31;
  return static_cast<uint8_t>(index | sign << (bits - 1));
}

// Returns the index of y, scaled to UniformTop(bits). Adds ~u to the fixed-point place and cuts
// it, which carries if and only if u is below the fraction.
inline uint32_t RoundUniform(float y, uint32_t random, int bits) {
  return (static_cast<uint32_t>(static_cast<int32_t>(y)) + (~random >> bits)) >>
         UniformDigits(bits);
}

// Returns the signed index of y, scaled to UniformTop(bits).
inline int32_t RoundDithered(float y, bool negative, uint32_t random, int bits) {
  const int32_t magnitude = static_cast<int32_t>(y);
  const int32_t place = negative ? -magnitude : magnitude;
  return (place + static_cast<int32_t>(random >> bits)) >> UniformDigits(bits);
}

// What QuantizeHalving needs besides r. Below l_1 = 2^-s that is the place in [0, l_1] as a
// 23-bit fraction, and above it the float's own exponent and mantissa.
struct Halving {
  float lowest;    // l_1
  float to_place;  // 2^23 / l_1
  int32_t bias;    // from the bits of r to (index << 23 | mantissa)
};
inline Halving MakeHalving(int bits) {
  const int inner = (1 << (bits - 1)) - 2;
  const float lowest = std::bit_cast<float>((127 - inner) << 23);
  return {lowest, std::bit_cast<float>((127 + 23 + inner) << 23), (126 - inner) << 23};
}

// Returns the index that r is rounded to.
inline uint32_t RoundHalving(const Halving& h, float r, uint32_t random) {
  const float low = r < h.lowest ? r : h.lowest;
  const int32_t below = static_cast<int32_t>(low * h.to_place);
  const int32_t above = std::bit_cast<int32_t>(r) - h.bias;
  const int32_t place = r < h.lowest ? below : above;
  return (static_cast<uint32_t>(place) + (~random >> 9)) >> 23;
}

// Returns the number of the interval that r lies in, which is that of the last one that begins
// at or below r.
inline uint32_t FindLevel(const LevelTable& table, float r) {
  uint32_t j = 0;
  for (uint32_t width = kMaxLevels / 2; width > 0; width /= 2) {
    if (j + width < table.count && r >= table.level[j + width]) j += width;
  }
  return j;
}

// Returns the end of the interval that r is rounded to: the number j of its interval, or j + 1.
inline constexpr float kPlaceTop = 0x1p30f;
inline uint32_t RoundLevels(const LevelTable& table, float r, uint32_t random) {
  const uint32_t j = FindLevel(table, r);
  const float place = (r - table.level[j]) * table.inverse_width[j] * kPlaceTop;
  return j + (static_cast<int32_t>(random >> 2) < static_cast<int32_t>(place) ? 1 : 0);
}

// Returns the code of a coordinate v whose relative size is r.
inline uint8_t LevelCode(const LevelTable& table, float r, float v, uint32_t random, int bits) {
  const uint32_t end = RoundLevels(table, r, random);
  if (table.has_zero) return SignedCode(v, end, bits);
  // The lower end of the lowest interval is l_0 with the other sign.
  const uint32_t sign = (std::bit_cast<uint32_t>(v) >> 31) ^ (end == 0 ? 1 : 0);
  return static_cast<uint8_t>((end == 0 ? 0 : end - 1) | sign << (bits - 1));
}

}  // namespace elastiquant::scalar
