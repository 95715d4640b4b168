// kElias, which is ENCODE of QSGD (Alistarh et al., 2017) and NUQSGD (Ramezani-Kebrya et al.,
// 2021). Each run has, in Elias omega, the number of its nonzeros + 1. For each nonzero there
// follow its distance from the one before (for the first, from the run's front, counted from
// 1), its sign as one bit (1 = negative) and the index of its level. The published form has no
// count and so cannot be decoded by itself. Runs follow one another bit by bit, and the first
// bit of the stream is the highest of its byte; zeros fill up the last byte.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Returns the most bytes that EncodeElias can write for n codes in `runs` runs.
size_t MaxEliasBytes(size_t n, int bits, size_t runs);

// Encodes the codes in runs of `run` codes, of which the last may be shorter, and returns the
// number of bytes written. out.size() >= MaxEliasBytes(...), 2 <= bits <= 8, run >= 1. Fails
// with kInvalidArgument if a code is >= 2^bits or a negative zero.
Result<size_t> EncodeElias(std::span<const uint8_t> codes, int bits, size_t run,
                           std::span<uint8_t> out);

// Fills `codes`. Fails with kCorruptData if a count, distance or level is beyond its range, or
// if `in` is not used up to its last byte.
Status DecodeElias(std::span<const uint8_t> in, int bits, size_t run, std::span<uint8_t> codes);

}  // namespace elastiquant
