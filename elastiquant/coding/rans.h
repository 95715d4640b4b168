// kRans, a static rANS over the code byte with a frequency table for each call. The layout,
// little endian, begins with a mode (1 byte). What follows depends on it:
//   0 fixed     the codes as kFixed has them, because nothing else was shorter
//   1 constant  the code that all are (1 byte)
//   2 single    table | state (4 bytes) | words
//   3 rows      table | tail rows t (1 byte) | tail state (4) | 32 states (4 each) | words
//   4 wide rows the same with 64 states, for speed
// The table is written by WriteRansTable and filled up to a byte. Words (2 bytes each) reach to
// the end and are read front to back.
//
// In mode 2 one state decodes all codes. In mode 3 the first codes are decoded in rows of L =
// 32 (in mode 4, L = 64), where code i of a row is decoded with state i; states take words as
// they need them, lane 0 first. The last n % L + L t codes are the tail. It is decoded after
// the rows with the tail state, and its words are the low halves of the states that the rows
// end with, lane 0 first; those that it does not need are zero. (An encoder is free to choose
// the states that it starts from. Used in this way, a lane costs 8 bits on average instead of
// 24.) Each high half must then be 1. The tail state, or the only state of mode 2, must end as
// 2^16, with which the encoder began.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Returns the most bytes that EncodeRans can use for n codes. What EncodeRans returns is at
// most the size of kFixed plus 1.
size_t MaxRansBytes(size_t n, int bits);

// Encodes the codes and returns the number of bytes written. 2 <= bits <= 8, codes.size() <
// 2^32, out.size() >= MaxRansBytes(...). Fails with kInvalidArgument if a code is >= 2^bits.
// `soon` is as in index_coding.h.
Result<size_t> EncodeRans(std::span<const uint8_t> codes, int bits, std::span<uint8_t> out,
                          const float* soon = nullptr);

// Fills `codes`. Fails with kCorruptData if the mode, the table, a final state or the length is
// wrong.
Status DecodeRans(std::span<const uint8_t> in, int bits, std::span<uint8_t> codes,
                  const float* soon = nullptr);

}  // namespace elastiquant
