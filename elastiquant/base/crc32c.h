// CRC-32C (Castagnoli; RFC 3720 appendix B.4), with the CPU's instruction where there is one.
#pragma once

#include <cstdint>
#include <span>

namespace elastiquant {

// The checksum of `data` appended to bytes whose checksum is `crc` (0 to begin).
// Crc32c over "123456789" is 0xE3069283.
uint32_t Crc32c(std::span<const uint8_t> data, uint32_t crc = 0);

// The same without the CPU's instruction: what Crc32c falls back to, and is tested against.
uint32_t Crc32cPortable(std::span<const uint8_t> data, uint32_t crc = 0);

}  // namespace elastiquant
