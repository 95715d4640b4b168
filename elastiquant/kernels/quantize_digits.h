// Quantises floats to digits, one a byte. Digits are indices into increasing lists of levels of
// any sign.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/kernels/quantize.h"

namespace elastiquant {

// The levels made ready for QuantizeDigits.
struct DigitLevels {
  static constexpr size_t kMost = 256;
  static constexpr size_t kFew = 16;  // so many are kept in registers
  size_t count = 0;                   // 2 to kMost
  // A power of two that brings levels from anywhere in fp32, denormals included, to where their
  // differences have ordinary inverses. The levels in all tables below are multiplied by it. It
  // is 1 for levels of ordinary size.
  float pre = 1;
  alignas(64) std::array<float, kMost> level;
  // 1 / (l_(j+1) - l_j), or 0 for the last level and for neighbours that are too close to tell
  // apart.
  alignas(64) std::array<float, kMost> inverse_width;
  // l_j, or infinity for the first and the last level.
  alignas(64) std::array<float, kMost> bound;
};

// Fills the table. `levels` are 2 to kMost finite numbers that do not decrease.
void FillDigitLevels(std::span<const float> levels, DigitLevels* table);

// Rounds y = v * pre * mul stochastically to the levels (times table.pre). It takes the upper
// neighbour if and only if the random fraction is below the place of y between both, cut to 30
// binary digits; outside of the levels it takes the nearest one. For levels like the values
// themselves pre is table.pre and mul is 1; for levels relative to a norm both are those of a
// Scaler.
void QuantizeDigits(const float* v, size_t n, RandomRun random, const DigitLevels& table,
                    float pre, float mul, uint8_t* digits);

// Sets the digits to 1 where v >= threshold, and to 0 elsewhere.
void QuantizeSides(const float* v, size_t n, float threshold, uint8_t* digits);

// Rounds to the nearest of the digits 0 ... top, which stand for (2 digit - top) / top times
// `range`: floor((v + range) / (2 range / top) + 1/2), to within 2^-15 of a step. range > 0,
// top <= 255.
void QuantizeNearest(const float* v, size_t n, float range, int top, uint8_t* digits);

}  // namespace elastiquant
