// Elias omega, the recursive universal code of the positive integers (Elias, 1975). The code of
// 1 is "0". For other k it is made from the back: it ends with "0", before which bin(k) is put;
// then k becomes the length of bin(k) - 1, and so on until k = 1. Thus 1 is 0, 2 is 100, 3 is
// 110, 4 is 101000 and 16 is 10100100000.
#pragma once

#include <bit>
#include <cstdint>

#include "elastiquant/coding/bit_stream.h"

namespace elastiquant {

// The low `length` bits of `bits`, of which the highest comes first.
struct OmegaCode {
  uint64_t bits = 0;
  int length = 0;
};

// Larger values are neither written nor read, so that one code always fits in a container.
inline constexpr uint64_t kMaxOmegaValue = uint64_t{1} << 32;

// Returns the code of k, 1 <= k <= kMaxOmegaValue. It has at most 45 bits.
constexpr OmegaCode EncodeOmega(uint64_t k) {
  OmegaCode code{0, 1};
  while (k > 1) {
    const int width = static_cast<int>(std::bit_width(k));
    code.bits |= k << code.length;
    code.length += width;
    k = static_cast<uint64_t>(width - 1);
  }
  return code;
}

// Reads a code right after Reload(). Returns false if its value exceeds kMaxOmegaValue.
bool ReadOmega(BitReader& reader, uint64_t* value);

}  // namespace elastiquant
