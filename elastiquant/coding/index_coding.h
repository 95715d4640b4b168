// From level indices to bits and back. One code a byte: the low bits-1 bits are the index of a
// level (0 is the level zero), the next bit is the sign (1 = negative). The quantisers give
// index 0 the sign 0; kFixed and kRans keep a negative zero all the same, kElias has no code
// for it.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Stable numbers: they travel in frames.
enum class IndexCoding : uint8_t {
  kFixed = 0,  // `bits` bits a code, coordinate i at bits [i*bits, (i+1)*bits), low bit first
  kElias = 1,  // ENCODE of QSGD/NUQSGD: Elias omega of gaps and levels, with a count in front
  kRans = 2,   // rANS over the signed index with a table for each call
};

// All functions below: 2 <= bits <= 8. `soon`, if given, is where as many floats as codes stand
// that the caller works on next: slow codings fetch them to the cache while they compute.

// The most bytes that EncodeIndices can write for n codes in `runs` runs.
size_t MaxIndexBytes(IndexCoding coding, size_t n, int bits, size_t runs);

// Codes `codes` into `out` and returns the bytes written. `run` cuts the codes into runs (the
// buckets), the last one may be short; only kElias looks at it, since its gaps restart there.
// out.size() >= MaxIndexBytes(...), or the call fails, as it does if a code has no place in the
// coding: one of more than `bits` bits, or under kElias a negative zero.
Result<size_t> EncodeIndices(IndexCoding coding, std::span<const uint8_t> codes, int bits,
                             size_t run, std::span<uint8_t> out, const float* soon = nullptr);

// The inverse: fills all of `codes`, or says what is wrong with `in`. All of `in` must be used.
// Never reads or writes outside the spans, whatever `in` holds.
Status DecodeIndices(IndexCoding coding, std::span<const uint8_t> in, int bits, size_t run,
                     std::span<uint8_t> codes, const float* soon = nullptr);

}  // namespace elastiquant
