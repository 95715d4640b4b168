// Sorts floats.
#pragma once

#include <cstddef>

namespace elastiquant {

// Sorts into increasing order, -0 before 0, with the same bits on every target. No value may be
// NaN.
void SortFloats(float* v, size_t n);

}  // namespace elastiquant
