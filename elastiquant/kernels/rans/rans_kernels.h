// The inner loops of rANS (range asymmetric numeral systems; Duda, 2013) with 12-bit
// frequencies, 32-bit states in [2^16, 2^32) and 16-bit words. 32 or 64 states run side by
// side, and code i of a row belongs to lane i. Bytes do not depend on the SIMD target.
//
// With f the frequency of a code and c the sum of those before it, encoding is
//   if (x >= f << 20) emit the low 16 bits of x, x >>= 16;   x = (x / f << 12) + x % f + c
// and decoding is its inverse, in the opposite order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elastiquant {

inline constexpr int kRansScaleBits = 12;
inline constexpr uint32_t kRansScale = 1u << kRansScaleBits;  // the sum of all frequencies
inline constexpr uint32_t kRansLow = 1u << 16;                // the least state
inline constexpr size_t kMaxRansLanes = 64;

// The frequencies of all codes: 0 if a code does not occur, else 1 to 4095.
struct RansFrequencies {
  uint16_t of[256];
};

// What the encoder needs of each code.
struct RansEncoderTable {
  alignas(64) uint32_t frequency_start[256];  // f | c << 16
  alignas(64) float reciprocal[256];          // (1 - 2^-22) / f
  bool small;                                 // all codes that occur are < 16
};
void MakeRansEncoderTable(const RansFrequencies& frequencies, RansEncoderTable* table);

// What the decoder needs of each of the 4096 values of a state's low bits.
struct RansDecoderTable {
  alignas(64)
      uint32_t slots[kRansScale + 16];  // code | f << 8 | (slot - c) << 20; SIMD stores overlap
  // The codes that occur, if they are 2 to 16 of them, in increasing order.
  int symbols;  // 0 if there are more
  alignas(16) uint8_t codes[16];
  uint16_t frequencies[16];
  uint16_t starts[16];
};
void MakeRansDecoderTable(const RansFrequencies& frequencies, RansDecoderTable* table);

// Encodes one code after the other with one state, the last code first. Words go to `words`
// (any alignment) in the order of emission, which is the reverse of the order of reading.
// Returns their number, or kRansNoRoom if there may be more than `capacity`.
inline constexpr size_t kRansNoRoom = ~size_t{0};
size_t RansEncodeOne(const uint8_t* codes, size_t n, const RansEncoderTable& table,
                     uint32_t* state, uint8_t* words, size_t capacity);
// Does the same for `rows` rows of `lanes` (32 or 64) codes with as many states. The contents
// of `words` between the last word and the capacity are unspecified afterwards. `soon`, if it
// is not null, points to as many floats as there are codes, which the caller works on next:
// they are fetched to the cache meanwhile.
size_t RansEncodeRows(const uint8_t* codes, size_t rows, size_t lanes,
                      const RansEncoderTable& table, uint32_t* states, uint8_t* words,
                      size_t capacity, const float* soon);

// Reverses the order of `count` words (any alignment).
void ReverseWords(uint8_t* words, size_t count);

// Decodes n codes with one state. `words` (any alignment) are in the order of reading. Returns
// the number of words used, or kRansNoRoom if there are too few.
size_t RansDecodeOne(const uint8_t* words, size_t word_count, const RansDecoderTable& table,
                     uint32_t* state, uint8_t* codes, size_t n);
// Does the same for `rows` rows of `lanes` (32 or 64) codes with as many states. `soon` is as
// in RansEncodeRows.
size_t RansDecodeRows(const uint8_t* words, size_t word_count, const RansDecoderTable& table,
                      uint32_t* states, uint8_t* codes, size_t rows, size_t lanes,
                      const float* soon);

}  // namespace elastiquant
