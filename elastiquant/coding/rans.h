// kRans: a static rANS over the code byte, with a frequency table for each call. The layout,
// little endian, from the first byte on:
//   mode (1 byte) and then, by mode,
//   0 fixed     the codes as kFixed, because nothing else was shorter
//   1 constant  the code that all are (1 byte)
//   2 single    table | state (4 bytes) | words
//   3 rows      table | tail rows t (1 byte) | tail state (4) | 32 states (4 each) | words
//   4 wide rows the same with 64 states, for speed
// The table is as WriteRansTable has it, filled up to a byte. Words (2 bytes each) reach to the
// end and are read front to back.
//
// In mode 2 one state decodes all codes. In mode 3 the first codes are decoded in rows of
// L = 32 (mode 4: 64), code i of a row with state i; states take words as they need them, lane
// 0 first. The last n % L + L t codes, the tail, are decoded with the tail state, after the
// rows: its words are the low halves of the states that the rows end with, lane 0 first, those
// not needed being zero. (An encoder is free to choose the states that it starts from. Used so,
// a lane costs 8 bits on average, not 24.) Each high half must be 1 then, and the tail state,
// or the only state of mode 2, must be 2^16: what the encoder began with.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"

namespace elastiquant {

// The most bytes that EncodeRans can use for n codes; what it returns is at most the size of
// kFixed plus 1.
size_t MaxRansBytes(size_t n, int bits);

// Returns the bytes written. out.size() >= MaxRansBytes(...), 2 <= bits <= 8, codes.size() <
// 2^32. Fails with kInvalidArgument if a code is >= 2^bits. `soon` is as in index_coding.h.
Result<size_t> EncodeRans(std::span<const uint8_t> codes, int bits, std::span<uint8_t> out,
                          const float* soon = nullptr);

// Fails with kCorruptData if the mode, the table, a final state or the length is wrong.
Status DecodeRans(std::span<const uint8_t> in, int bits, std::span<uint8_t> codes,
                  const float* soon = nullptr);

}  // namespace elastiquant
