// The values of what chunks keep, in a few bits each. A chunk has a scale, the root of its mean
// square, and a message a set of levels. The size of a value, in units of the scale, falls into
// one of equal bins, and a level is what the values of its bin average to, over the message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Returns the root of the mean square of these values, none of which is 0, as the nearest
// bfloat16 above 0. Fails with kOutOfRange if that is infinite.
Result<uint16_t> ChunkScale(std::span<const float> values);
float FromChunkScale(uint16_t scale);

// Sums of a bin: of scale * |value|, and of scale^2.
struct LevelSums {
  double products = 0;
  double squares = 0;
};

// Sets codes[i] to the bin of values[i], and above it the sign, and adds the values to `sums`,
// of which there are 2^(bits - 1), a bin each. With m bins, bin j holds j w <= |v| / scale <
// (j + 1) w, w = (1 + 3/4 bits) / m, and the last one all above too. 1 <= bits <= 8.
void QuantizeChunk(std::span<const float> values, uint16_t scale, int bits, uint8_t* codes,
                   std::span<LevelSums> sums);

// Returns the level of least squared error: |Q(v) - v|^2 is least, for these bins and scales,
// with the level sum(scale |v|) / sum(scale^2). 0 if the bin is empty.
float LevelOf(const LevelSums& sums);

// An upper bound on |Q(v) - v|^2 / |v|^2, below 1, of a message whose chunks have up to `kept`
// values, the squares of which are normal numbers.
double ChunkValueError(size_t kept);

}  // namespace elastiquant
