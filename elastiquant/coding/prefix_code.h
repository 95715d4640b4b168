// Canonical prefix codes of small alphabets. The lengths of the codes are optimal for given
// counts. They are sent as a table, from which both sides derive the same codes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"
#include "elastiquant/coding/bit_stream.h"

namespace elastiquant {

inline constexpr int kMaxPrefixSymbols = 128;
inline constexpr int kMaxPrefixBits = 12;  // the longest code; it keeps a decoder's table small

// The codes of an alphabet. They are given out by length, then by symbol, counting upwards from
// 0 (as in RFC 1951, section 3.2.2). If only one symbol has a code, that code has no bits.
class PrefixCode {
 public:
  // Returns the code with the fewest bits in all (package-merge: Larmore and Hirschberg, 1990);
  // equal counts are taken in the order of the symbols. counts.size() <= kMaxPrefixSymbols, and
  // some count is not 0. Symbols with the count 0 get no code.
  static PrefixCode Optimal(std::span<const uint64_t> counts);

  // Reads what Write has written and sets *bytes to its size. Fails with kCorruptData if `in`
  // ends too early, if a symbol is not below `symbols`, or if the lengths do not make a
  // complete code.
  static Result<PrefixCode> Read(std::span<const uint8_t> in, int symbols, size_t* bytes);

  // Writes the first symbol that has a code (u8), and the number of symbols from there to the
  // last that has one (u8). Unless that number is 1, a length in 4 bits follows for each of
  // these symbols, low half first. Returns the number of bytes written, at most kMaxTableBytes.
  size_t Write(uint8_t* out) const;
  static constexpr size_t kMaxTableBytes = 2 + kMaxPrefixSymbols / 2;

  int length(int symbol) const { return lengths_[static_cast<size_t>(symbol)]; }
  uint32_t code(int symbol) const { return codes_[static_cast<size_t>(symbol)]; }

 private:
  friend class PrefixDecoder;
  void GiveOutCodes();

  int first_ = 0, count_ = 1;  // the symbols of the table
  std::array<uint8_t, kMaxPrefixSymbols> lengths_{};
  std::array<uint16_t, kMaxPrefixSymbols> codes_{};
};

// Decodes symbols by looking up the next kMaxPrefixBits bits.
class PrefixDecoder {
 public:
  explicit PrefixDecoder(const PrefixCode& code);

  // Reads a symbol, which takes at most kMaxPrefixBits bits.
  int Next(BitReader& reader) const {
    const uint16_t entry = entries_[reader.Peek(kMaxPrefixBits)];
    reader.Skip(entry & 15);
    return entry >> 4;
  }

 private:
  std::array<uint16_t, size_t{1} << kMaxPrefixBits> entries_;  // symbol * 16 + length
};

}  // namespace elastiquant
