// Converts gradients to the metric of an adaptive optimiser, which moves a weight by g /
// sqrt(v), and back. Every target gives the same result to the bit.
#pragma once

#include <cstddef>

namespace elastiquant {

// Sets g[i] = g[i] / sqrt(max(v[i], 0) + floor). floor > 0.
void Whiten(const float* v, size_t n, float floor, float* g);

// Sets g[i] = g[i] * sqrt(max(v[i], 0) + floor).
void Unwhiten(const float* v, size_t n, float floor, float* g);

}  // namespace elastiquant
