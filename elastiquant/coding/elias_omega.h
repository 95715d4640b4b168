// Elias omega, the recursive universal code of the positive integers (Elias, 1975): "0" for 1;
// else "0", before which bin(k) is put, then k = length of bin(k) - 1, again until k = 1.
// 1: 0, 2: 100, 3: 110, 4: 101000, 16: 10100100000.
#pragma once

#include <bit>
#include <cstdint>

#include "elastiquant/coding/bit_stream.h"

namespace elastiquant {

struct OmegaCode {
  uint64_t bits = 0;
  int length = 0;
};

// Larger values are neither written nor read: with them one code fits in a container.
inline constexpr uint64_t kMaxOmegaValue = uint64_t{1} << 32;

// 1 <= k <= kMaxOmegaValue, for which the length is 45 at most.
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

// Reads a code right after Reload(). False if its value exceeds kMaxOmegaValue.
bool ReadOmega(BitReader& reader, uint64_t* value);

}  // namespace elastiquant
