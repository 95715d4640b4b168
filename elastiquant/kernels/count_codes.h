// Counts how often codes occur.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elastiquant {

// Sets counts[c] to the number of times that c occurs in `codes`. It is faster if bits <= 4 and
// all codes are below 2^bits.
void CountCodes(const uint8_t* codes, size_t n, int bits, uint32_t counts[256]);

}  // namespace elastiquant
