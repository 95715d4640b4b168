// Sorting of floats.
#pragma once

#include <cstddef>

namespace elastiquant {

// Sorts into increasing order, -0 before 0: the same bits on every target. No NaN.
void SortFloats(float* v, size_t n);

}  // namespace elastiquant
