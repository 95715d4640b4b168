// Quantises floats to sign-magnitude codes, one a byte. The low bits-1 bits of a code are the
// index of a level, and the next bit is the sign. Index 0 has the sign 0, unless the levels
// lack a zero. A coordinate has a place between its two levels and a random fraction u (that of
// base/random.h for its place in the message), both cut to a fixed number of binary digits. It
// is rounded to the upper level if and only if u is below its place.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/level_table.h"
#include "elastiquant/kernels/scaler.h"

namespace elastiquant {

// The random numbers of consecutive coordinates, of which `first` is that of values[0].
struct RandomRun {
  LaneKeys keys;
  uint32_t first;
};

// Returns the number of steps of uniform levels: l_j = j / UniformSteps(bits).
constexpr int UniformSteps(int bits) { return (1 << (bits - 1)) - 1; }
// Returns the number of binary digits after the point in the fixed-point sizes of uniform
// levels.
constexpr int UniformDigits(int bits) { return 32 - bits; }

// Return the top of the Scaler that the quantisers below need: UniformTop(bits) or
// kRelativeTop.
constexpr float UniformTop(int bits) {
  return static_cast<float>(UniformSteps(bits)) *
         static_cast<float>(uint32_t{1} << UniformDigits(bits));
}
inline constexpr float kRelativeTop = 1;

// Quantises to the levels j / UniformSteps(bits). The scaler's top is UniformTop(bits).
void QuantizeUniform(const float* v, size_t n, RandomRun random, const Scaler& scaler, int bits,
                     uint8_t* codes);

// Quantises to the same levels with subtractive dither: k = floor(x + u + 1/2) for the signed x
// = v/norm * UniformSteps(bits) and u in [-1/2, 1/2). The scaler's top is UniformTop(bits).
void QuantizeDithered(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                      int bits, uint8_t* codes);

// Quantises to the levels 0, 2^-s, ..., 1/2, 1 with s = 2^(bits-1) - 2, which it reads straight
// from the exponent of the float; bits <= kMaxHalvingBits. The scaler's top is kRelativeTop.
inline constexpr int kMaxHalvingBits = 7;
void QuantizeHalving(const float* v, size_t n, RandomRun random, const Scaler& scaler, int bits,
                     uint8_t* codes);

// Quantises to any levels, at most 2^(bits-1), with a zero or without. The scaler's top is
// kRelativeTop.
void QuantizeLevels(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                    const LevelTable& table, int bits, uint8_t* codes);

}  // namespace elastiquant
