// For tests and fuzzers: damage behind a checksum that still holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/codec/frame.h"

namespace elastiquant {

// Makes the checksum right again, so that a damaged frame reaches its codec. A frame shorter
// than a header is left as it is.
inline void FixFrameChecksum(std::span<uint8_t> frame) {
  if (frame.size() < kFrameHeaderBytes) return;
  const std::span<uint8_t> field = frame.subspan(12, 4);
  std::ranges::fill(field, uint8_t{0});
  const uint32_t checksum = Crc32c(frame);
  std::memcpy(field.data(), &checksum, sizeof(checksum));
}

}  // namespace elastiquant
