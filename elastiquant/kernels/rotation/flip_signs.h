// Flips signs at random, as the diagonal matrix of a randomised Hadamard transform does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/kernels/quantize.h"

namespace elastiquant {

// Sets out[i] = in[i] * scale, negated where the top random bit of its coordinate is set;
// run.first is the coordinate of in[0]. `out` is `in` itself, or does not overlap it.
void FlipSigns(const float* in, size_t n, RandomRun run, float scale, float* out);

}  // namespace elastiquant
