// Codes level indices as bits, and decodes them. Each code is one byte: its low bits-1 bits are
// the index of a level (0 is the level zero), and the next bit is the sign (1 = negative). The
// quantisers give index 0 the sign 0. kFixed and kRans can code a negative zero all the same;
// kElias cannot.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"

namespace elastiquant {

// The numbers are stable, because they travel in frames.
enum class IndexCoding : uint8_t {
  kFixed = 0,  // `bits` bits a code, coordinate i at bits [i*bits, (i+1)*bits), low bit first
  kElias = 1,  // ENCODE of QSGD/NUQSGD: Elias omega of gaps and levels, with a count in front
  kRans = 2,   // rANS over the signed index, with a frequency table for each call
};

// In all functions below 2 <= bits <= 8. `soon`, if it is not null, points to as many floats as
// there are codes, which the caller works on next: kRans fetches them to the cache while it
// computes.

// Returns the most bytes that EncodeIndices can write for n codes in `runs` runs.
size_t MaxIndexBytes(IndexCoding coding, size_t n, int bits, size_t runs);

// Codes `codes` into `out` and returns the number of bytes written. `run` is the length of the
// runs (the buckets) that the codes are cut into, of which the last may be shorter; only kElias
// looks at it, since its gaps restart there. Fails with kBufferTooSmall if `out` is too small;
// MaxIndexBytes(...) always suffices. Fails with kInvalidArgument if a code cannot be coded:
// one of more than `bits` bits, or under kElias a negative zero.
Result<size_t> EncodeIndices(IndexCoding coding, std::span<const uint8_t> codes, int bits,
                             size_t run, std::span<uint8_t> out, const float* soon = nullptr);

// Fills all of `codes` with what EncodeIndices has coded. Fails with kCorruptData if `in` is
// wrong or not used up. Never reads or writes outside the spans, whatever `in` holds.
Status DecodeIndices(IndexCoding coding, std::span<const uint8_t> in, int bits, size_t run,
                     std::span<uint8_t> codes, const float* soon = nullptr);

}  // namespace elastiquant
