// From floats to digits: indices into increasing lists of levels of any sign, one a byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/kernels/quantize.h"

namespace elastiquant {

// Levels made ready for QuantizeDigits.
struct DigitLevels {
  static constexpr size_t kMost = 256;
  static constexpr size_t kFew = 16;  // all in registers
  size_t count = 0;                   // 2 to kMost
  // A power of two that brings levels from anywhere in fp32, denormals included, to where their
  // differences have ordinary inverses. It is in all below, and 1 for levels of ordinary size.
  float pre = 1;
  alignas(64) std::array<float, kMost> level;
  // 1 / (l_(j+1) - l_j); 0 for the last, and for neighbours that are too close to tell apart.
  alignas(64) std::array<float, kMost> inverse_width;
  // l_j, but for the first and the last infinity.
  alignas(64) std::array<float, kMost> bound;
};

// levels: 2 to kMost finite numbers that do not decrease.
void FillDigitLevels(std::span<const float> levels, DigitLevels* table);

// Stochastic rounding of y = v * pre * mul to the levels (times table.pre): to the upper
// neighbour iff the random fraction is below the place of y between both, cut to 30 binary
// digits. Outside of the levels to the nearest one. pre and mul: table.pre and 1 for levels
// like the values themselves; those of a Scaler for levels relative to a norm.
void QuantizeDigits(const float* v, size_t n, RandomRun random, const DigitLevels& table,
                    float pre, float mul, uint8_t* digits);

// 1 if v >= threshold, else 0.
void QuantizeSides(const float* v, size_t n, float threshold, uint8_t* digits);

// The nearest of the digits 0 ... top, at (2 digit - top) / top times `range`, which is
// positive: floor((v + range) / (2 range / top) + 1/2), to within 2^-15 of a step. top <= 255.
void QuantizeNearest(const float* v, size_t n, float range, int top, uint8_t* digits);

}  // namespace elastiquant
