// Converts gradients to the metric of an adaptive optimiser, which moves a weight by g /
// sqrt(v), and back. Every target gives the same result to the bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elastiquant {

// Divides g[i] by a unit that is sqrt(max(v[i], 0) + floor) to within 3.6 %: a codec gains
// nothing from a better root, which takes the processor several times as long, as long as both
// sides take the same. `floor` is a normal float above 0, and `out` may be g. Returns the sum,
// modulo 2^32, of the bits of all v[i]: it differs if one of them does.
uint32_t Whiten(const float* v, size_t n, float floor, const float* g, float* out);

// Multiplies g[i] by that unit.
void Unwhiten(const float* v, size_t n, float floor, const float* g, float* out);

}  // namespace elastiquant
