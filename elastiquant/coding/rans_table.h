// The frequency table of rANS: made of counts, written and read.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/coding/bit_stream.h"
#include "elastiquant/kernels/rans/rans_kernels.h"

namespace elastiquant {

// Scales `counts` to a sum of 4096 so that the codes cost the fewest bits; every code that
// occurs gets at least 1. At least two codes occur. Integers only: the same everywhere.
RansFrequencies NormalizeCounts(const uint32_t counts[256]);

// In the order +0, -0, +1, -1, ... of the 2^bits codes, each frequency as the Elias omega code
// of its difference d from a guess: 1, 2, 3, 4, 5 for d = 0, -1, 1, -2, 2. The guess is, for
// +j, the frequency of +(j-1) (0 for j = 0); for -j, that of +j (0 for j = 0).
void WriteRansTable(const RansFrequencies& frequencies, int bits, BitWriter& writer);

// False if a frequency is beyond [0, 4095] or their sum is not 4096.
bool ReadRansTable(BitReader& reader, int bits, RansFrequencies* frequencies);

// The most bytes that WriteRansTable can write.
size_t MaxRansTableBytes(int bits);

}  // namespace elastiquant
