// Natural compression (Horvath et al., 2019). The magnitude of a float is rounded to a
// neighbouring power of two, in proportion to the distance, so that no mantissa is left.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/kernels/dequantize.h"

namespace elastiquant {

// The largest value that is never rounded up to infinity.
inline constexpr float kNaturalMax = 0x1p127f;

// Sets exponents[i] to the biased exponent of the float that |in[i]| is rounded to, 0 to 254 (0
// is the value 0), and signs[i] to 1 if in[i] has its sign bit set, else to 0. Returns n, or
// the index of the first value that is not within +-kNaturalMax; then what was written is
// unspecified.
size_t SplitNatural(const float* in, size_t n, RandomRun random, uint8_t* exponents,
                    uint8_t* signs);

// Puts the values +-2^(exponent - 127) or +-0 together; signs are 0 or 1. Returns false if an
// exponent is 255; then what was written is unspecified.
bool JoinNatural(const uint8_t* exponents, const uint8_t* signs, size_t n, Accumulate how,
                 float* out);

}  // namespace elastiquant
