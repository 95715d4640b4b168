// Random signs, the diagonal matrix of a randomised Hadamard transform.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/kernels/quantize.h"

namespace elastiquant {

// out[i] = in[i] * scale, negated where the top random bit of its coordinate is set; run.first
// is the coordinate of in[0]. In place or not at all overlapping.
void FlipSigns(const float* in, size_t n, RandomRun run, float scale, float* out);

}  // namespace elastiquant
