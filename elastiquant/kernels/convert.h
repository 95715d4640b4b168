// Between floats and the plain formats fp32, fp16 and bf16, as little-endian bytes that need
// no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/base/random.h"

namespace elastiquant {

// Packing reads in[0, n) and returns n, or the index of the first value that the format cannot
// hold (NaN and infinity, always); then what was written is unspecified.

// 4 bytes a value, as they are.
size_t PackFp32(const float* in, size_t n, uint8_t* out);
// 2 bytes a value. IEEE 754 binary16, to nearest, ties to even; saturates at +-65504.
size_t PackFp16(const float* in, size_t n, uint8_t* out);
// 2 bytes a value. The upper half of a float, to nearest, ties to even; saturates at the
// largest finite bfloat16, 0x1.fep127.
size_t PackBf16(const float* in, size_t n, uint8_t* out);
// The same but unbiased: away from zero with the probability that the lower half of the float
// says. `first` is the coordinate of in[0]. Cannot hold what exceeds the largest bfloat16.
size_t PackBf16Stochastic(const float* in, size_t n, LaneKeys keys, uint32_t first,
                          uint8_t* out);

// Unpacking gives out[i] = value, and UnpackAdd out[i] += weight * value. Both return false if
// a value is NaN or infinite; then what was written is unspecified.
bool UnpackFp32(const uint8_t* in, size_t n, float* out);
bool UnpackFp16(const uint8_t* in, size_t n, float* out);
bool UnpackBf16(const uint8_t* in, size_t n, float* out);
bool UnpackAddFp32(const uint8_t* in, size_t n, float weight, float* out);
bool UnpackAddFp16(const uint8_t* in, size_t n, float weight, float* out);
bool UnpackAddBf16(const uint8_t* in, size_t n, float weight, float* out);

}  // namespace elastiquant
