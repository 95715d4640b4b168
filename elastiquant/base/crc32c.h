// The checksum CRC-32C (Castagnoli; RFC 3720 appendix B.4). It is computed by the CPU's own
// instructions where there are any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace elastiquant {

// Returns the checksum of some bytes followed by `data`, where `crc` is the checksum of those
// bytes, or 0 if there are none. Crc32c over "123456789" is 0xE3069283.
uint32_t Crc32c(std::span<const uint8_t> data, uint32_t crc = 0);

// Returns the functions that compute it on this CPU, the fastest first. Crc32c uses the first;
// tests try all of them.
using Crc32cFunction = uint32_t (*)(std::span<const uint8_t> data, uint32_t crc);
std::vector<Crc32cFunction> Crc32cFunctions();

}  // namespace elastiquant
