// NumPy's .npy files of float32 (format versions 1 to 3: numpy.lib.format).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant::cli {

struct NpyHeader {
  std::vector<size_t> shape;  // () is a scalar: one element
  size_t elements = 0;        // the product of `shape`
  size_t data_offset = 0;     // where the elements begin in the file
};

// Reads the header at the front of `bytes`, which may hold less than the whole file but must
// hold the whole header. Anything but little-endian float32 in C order is an error that says
// how to convert it.
Result<NpyHeader> ParseNpyHeader(std::span<const uint8_t> bytes);

struct NpyArray {
  std::vector<size_t> shape;
  std::vector<float> values;  // in C order
};

// kNotFound or kIo if the file cannot be read, kUnsupported for another type or order,
// kCorruptData if it is not a .npy file or its size is not what its header says. Allocates no
// more than the file's size.
Result<NpyArray> ReadNpy(const std::string& path);

// Writes `values` as a 1-D array, format version 1.
Status WriteNpy(const std::string& path, std::span<const float> values);

}  // namespace elastiquant::cli
