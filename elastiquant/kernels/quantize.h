// From floats to sign-magnitude codes, one a byte: the low bits-1 bits are the level's index,
// the next bit is the sign. Index 0 has sign 0, unless the levels lack a zero. Rounding takes
// the upper neighbour iff the random fraction u (of base/random.h, for the coordinate's place
// in the message) is below the coordinate's place between its two levels, both cut to a fixed
// number of binary digits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/level_table.h"
#include "elastiquant/kernels/scaler.h"

namespace elastiquant {

// The random numbers of consecutive coordinates: `first` is the place of values[0].
struct RandomRun {
  LaneKeys keys;
  uint32_t first;
};

// The number of steps of uniform levels: l_j = j / UniformSteps(bits).
constexpr int UniformSteps(int bits) { return (1 << (bits - 1)) - 1; }
// Binary digits after the point in the fixed-point sizes of uniform levels.
constexpr int UniformDigits(int bits) { return 32 - bits; }

// The scaler's top for each quantiser below.
constexpr float UniformTop(int bits) {
  return static_cast<float>(UniformSteps(bits)) *
         static_cast<float>(uint32_t{1} << UniformDigits(bits));
}
inline constexpr float kRelativeTop = 1;

// Levels j / UniformSteps(bits). Scaler top: UniformTop(bits).
void QuantizeUniform(const float* v, size_t n, RandomRun random, const Scaler& scaler, int bits,
                     uint8_t* codes);

// Subtractive dither on the same levels: k = floor(x + u + 1/2) for the signed x = v/norm *
// UniformSteps(bits) and u in [-1/2, 1/2). Scaler top: UniformTop(bits).
void QuantizeDithered(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                      int bits, uint8_t* codes);

// Levels 0, 2^-s, ..., 1/2, 1 with s = 2^(bits-1) - 2, straight from the exponent of the float;
// bits <= kMaxHalvingBits. Scaler top: kRelativeTop.
inline constexpr int kMaxHalvingBits = 7;
void QuantizeHalving(const float* v, size_t n, RandomRun random, const Scaler& scaler, int bits,
                     uint8_t* codes);

// Any levels, at most 2^(bits-1), with a zero or without. Scaler top: kRelativeTop.
void QuantizeLevels(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                    const LevelTable& table, int bits, uint8_t* codes);

}  // namespace elastiquant
