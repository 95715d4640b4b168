// From sign-magnitude codes back to floats. A value is norm * level, rounded once; adding
// weight * value to the output rounds the product and the sum once each, on every target.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/kernels/level_table.h"
#include "elastiquant/kernels/quantize.h"

namespace elastiquant {

// out[i] = value, or out[i] += weight * value.
struct Accumulate {
  bool add = false;
  float weight = 1;
};

// Every code must be below 2^table.bits.
void DequantizeLevels(const uint8_t* codes, size_t n, const ValueTable& table, float norm,
                      Accumulate how, float* out);

// The value is scale * table[digit]. `table` has 256 entries (past the digits' base, anything
// finite), 64-byte aligned; `base` is a bound on the digits.
void DequantizeDigits(const uint8_t* digits, size_t n, const float* table, size_t base,
                      float scale, Accumulate how, float* out);

// The value is step * (k - u) with step = norm / UniformSteps(bits), k the signed index and u
// in [-1/2, 1/2) the number that QuantizeDithered had.
void DequantizeDithered(const uint8_t* codes, size_t n, RandomRun random, float step, int bits,
                        Accumulate how, float* out);

// The largest index (sign taken off) among the codes; 0 if n is 0.
uint8_t MaxIndex(const uint8_t* codes, size_t n, int bits);

}  // namespace elastiquant
