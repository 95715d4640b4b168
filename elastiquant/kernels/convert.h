// Converts between floats and the plain formats fp32, fp16 and bf16, which are little-endian
// bytes that need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/base/random.h"

namespace elastiquant {

// The functions that pack read in[0, n). They return n, or the index of the first value that
// the format cannot hold, which is always so for NaN and infinity; then what was written is
// unspecified.

// Writes 4 bytes a value: the floats as they are.
size_t PackFp32(const float* in, size_t n, uint8_t* out);
// Writes 2 bytes a value: IEEE 754 binary16, rounded to nearest with ties to even. It saturates
// at +-65504.
size_t PackFp16(const float* in, size_t n, uint8_t* out);
// Writes 2 bytes a value: the upper half of a float, rounded to nearest with ties to even. It
// saturates at the largest finite bfloat16, 0x1.fep127.
size_t PackBf16(const float* in, size_t n, uint8_t* out);
// Does the same, but without bias: it rounds away from zero with the probability that the lower
// half of the float says. `first` is the coordinate of in[0]. It cannot hold values beyond the
// largest bfloat16.
size_t PackBf16Stochastic(const float* in, size_t n, LaneKeys keys, uint32_t first,
                          uint8_t* out);

// The functions that unpack set out[i] = value, and UnpackAdd... add weight * value to out[i].
// All return false if a value is NaN or infinite; then what was written is unspecified.
bool UnpackFp32(const uint8_t* in, size_t n, float* out);
bool UnpackFp16(const uint8_t* in, size_t n, float* out);
bool UnpackBf16(const uint8_t* in, size_t n, float* out);
bool UnpackAddFp32(const uint8_t* in, size_t n, float weight, float* out);
bool UnpackAddFp16(const uint8_t* in, size_t n, float weight, float* out);
bool UnpackAddBf16(const uint8_t* in, size_t n, float weight, float* out);

}  // namespace elastiquant
