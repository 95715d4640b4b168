// Sorting of floats.
#pragma once

#include <cstddef>

namespace elastiquant {

// Sorts into increasing order. No NaN; -0 and 0 come in any order.
void SortFloats(float* v, size_t n);

}  // namespace elastiquant
