// Natural compression (Horvath et al., 2019): a float's magnitude rounded to a neighbouring
// power of two, in proportion to the distance, so that the mantissa is gone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/kernels/dequantize.h"

namespace elastiquant {

// The largest value that is never rounded up to infinity.
inline constexpr float kNaturalMax = 0x1p127f;

// exponents[i] = the biased exponent of the float that |in[i]| is rounded to, 0 to 254 (0 is
// the value 0), and signs[i] = 1 if in[i] has its sign bit set, else 0. Returns n, or the index
// of the first value that is not within +-kNaturalMax; what was written is unspecified then.
size_t SplitNatural(const float* in, size_t n, RandomRun random, uint8_t* exponents,
                    uint8_t* signs);

// The values +-2^(exponent - 127), or +-0. signs: 0 or 1. False if an exponent is 255; what was
// written is unspecified then.
bool JoinNatural(const uint8_t* exponents, const uint8_t* signs, size_t n, Accumulate how,
                 float* out);

}  // namespace elastiquant
