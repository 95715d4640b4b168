// Histograms of codes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elastiquant {

// counts[c] = how often c occurs in `codes`. It is faster if all are < 2^bits with bits <= 4.
void CountCodes(const uint8_t* codes, size_t n, int bits, uint32_t counts[256]);

}  // namespace elastiquant
