// CRC-32C (Castagnoli; RFC 3720 appendix B.4), by the CPU's instructions where it has any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace elastiquant {

// The checksum of `data` appended to bytes whose checksum is `crc` (0 to begin).
// Crc32c over "123456789" is 0xE3069283.
uint32_t Crc32c(std::span<const uint8_t> data, uint32_t crc = 0);

// The ways to compute it that this CPU has, best first: Crc32c takes the first; tests try all.
using Crc32cFunction = uint32_t (*)(std::span<const uint8_t> data, uint32_t crc);
std::vector<Crc32cFunction> Crc32cFunctions();

}  // namespace elastiquant
