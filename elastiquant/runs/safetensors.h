// Tensors by name in one file, in the format that PyTorch and others read by the package
// safetensors (https://github.com/huggingface/safetensors):
//
//   u64 header size, little endian; the header, JSON, padded by spaces:
//     {"__metadata__": {"key": "text"},
//      "fc.bias": {"dtype": "F32", "shape": [10], "data_offsets": [0, 40]}};
//   then the data, to which the offsets count, with no gap and no overlap.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// A tensor as it is in a file.
struct StoredTensor {
  std::string dtype = "F32";  // one that DtypeBytes knows
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;  // its values, with the last dimension's beside each other

  // Returns text such as "F32 [16, 3, 3, 3]".
  std::string Describe() const;
  bool operator==(const StoredTensor&) const = default;
};

// The contents of a file. Names, keys and texts are UTF-8.
struct Safetensors {
  std::map<std::string, std::string> metadata;
  std::map<std::string, StoredTensor> tensors;

  bool operator==(const Safetensors&) const = default;
};

// Returns the bytes of a value: 4 for F32, and 0 for a dtype that is not known here.
size_t DtypeBytes(std::string_view dtype);

// Returns the bytes of a file. Each tensor's bytes must be as many as its dtype and shape say.
// The data begins at a multiple of 8 in the file, and each tensor at one of its dtype's size.
std::vector<uint8_t> SerializeSafetensors(const Safetensors& file);

// Parses the bytes of a file, which may be any. Fails with CorruptData, which names the check
// that failed (size, header, length or tensor) and the tensor. Headers of more than 100 MB are
// refused, as the reference does.
Result<Safetensors> ParseSafetensors(std::span<const uint8_t> bytes);

}  // namespace elastiquant
