// What stands before the elements in a .npy file (numpy.lib.format, version 1).
#pragma once

#include <cstddef>
#include <string>

namespace elastiquant {

// Of a 1-D array of `elements` float32, which follow at once in little endian: a multiple of 64
// bytes, as NumPy's own writer makes it.
std::string NpyFront(size_t elements);

}  // namespace elastiquant
