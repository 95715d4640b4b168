// Makes the frequency table of rANS from counts, writes it and reads it.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/coding/bit_stream.h"
#include "elastiquant/kernels/rans/rans_kernels.h"

namespace elastiquant {

// Scales `counts` to a sum of 4096 so that the codes cost the fewest bits; every code that
// occurs gets at least 1. At least two codes must occur. It computes with integers only, so the
// result is the same everywhere.
RansFrequencies NormalizeCounts(const uint32_t counts[256]);

// Writes the frequencies in the order +0, -0, +1, -1, ... of the 2^bits codes. Each is written
// as the Elias omega code of its difference d from a guess: 1, 2, 3, 4, 5 for d = 0, -1, 1, -2,
// 2. The guess for +j is the frequency of +(j-1), or 0 for j = 0; for -j it is that of +j, or 0
// for j = 0.
void WriteRansTable(const RansFrequencies& frequencies, int bits, BitWriter& writer);

// Reads what WriteRansTable has written. Returns false if a frequency is beyond [0, 4095] or
// their sum is not 4096.
bool ReadRansTable(BitReader& reader, int bits, RansFrequencies* frequencies);

// Returns the most bytes that WriteRansTable can write.
size_t MaxRansTableBytes(int bits);

}  // namespace elastiquant
