// The bytes that stand before the elements in a .npy file (numpy.lib.format, version 1).
#pragma once

#include <cstddef>
#include <string>

namespace elastiquant {

// Returns those bytes for a 1-D array of `elements` float32, which must follow at once in
// little endian. Their number is a multiple of 64, as it is in files that NumPy writes.
std::string NpyFront(size_t elements);

}  // namespace elastiquant
