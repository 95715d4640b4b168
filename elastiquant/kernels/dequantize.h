// Turns sign-magnitude codes back into floats. A value is norm * level, rounded once; when
// weight * value is added to the output, the product and the sum are rounded once each, on
// every target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/kernels/level_table.h"
#include "elastiquant/kernels/quantize.h"

namespace elastiquant {

// Says whether the output is set, out[i] = value, or added to, out[i] += weight * value.
struct Accumulate {
  bool add = false;
  float weight = 1;
};

// Dequantises codes by looking them up. Every code must be below 2^table.bits.
void DequantizeLevels(const uint8_t* codes, size_t n, const ValueTable& table, float norm,
                      Accumulate how, float* out);

// Gives the values scale * table[digit]. `table` has 256 entries and is aligned to 64 bytes;
// its entries from the base of the digits on may be anything finite. All digits are below
// `base`.
void DequantizeDigits(const uint8_t* digits, size_t n, const float* table, size_t base,
                      float scale, Accumulate how, float* out);

// Gives the values step * (k - u) with step = norm / UniformSteps(bits), where k is the signed
// index and u in [-1/2, 1/2) is the number that QuantizeDithered had.
void DequantizeDithered(const uint8_t* codes, size_t n, RandomRun random, float step, int bits,
                        Accumulate how, float* out);

// Returns the largest index (a code without its sign) among the codes, or 0 if n is 0.
uint8_t MaxIndex(const uint8_t* codes, size_t n, int bits);

}  // namespace elastiquant
