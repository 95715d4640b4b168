// Codes finite floats exactly. There are two symbols with a prefix code each: how far the
// exponent is below the message's largest, and the number of bits of the mantissa down to its
// last one. The sign and those bits follow as they are. A value that binary16 can hold costs
// what it costs there, less what the entropy of its exponent saves; a sum of some such values
// costs little more.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "elastiquant/coding/prefix_code.h"

namespace elastiquant {

// Symbols of exponents: the message's largest exponent less that of the value. The last symbol
// stands for all greater differences, and the exponent follows it in 8 bits.
inline constexpr int kFloatExponentSymbols = 63;
inline constexpr int kFloatLengthSymbols = 24;  // lengths of mantissas, 0 to 23

// Counts the symbols of one or more runs of values, whose largest exponent (of 8 bits) is
// `top`.
struct FloatCounts {
  explicit FloatCounts(int top_exponent) : top(top_exponent) {}

  int top;
  std::array<uint64_t, kFloatExponentSymbols> exponents{};
  std::array<uint64_t, kFloatLengthSymbols> lengths{};
  uint64_t plain_bits = 0;  // the bits that follow the symbols

  void Add(std::span<const float> values);
  void Add(const FloatCounts& other);
};

// A code that is fitted to counts.
class FloatCode {
 public:
  // Makes the code that is the shortest for these counts, of which some is not 0.
  explicit FloatCode(const FloatCounts& counts);
  // Reads what Write has written and sets *bytes to its size. Fails with kCorruptData if it is
  // cut short or not a valid code.
  static Result<FloatCode> Read(std::span<const uint8_t> in, size_t* bytes);
  // Writes the largest exponent (u8) and the tables of the two prefix codes, and returns the
  // number of bytes written, at most kMaxTableBytes.
  size_t Write(uint8_t* out) const;
  static constexpr size_t kMaxTableBytes = 1 + 2 * PrefixCode::kMaxTableBytes;

  int top() const { return top_; }
  // Returns the number of bits that Encode adds for runs of these counts.
  uint64_t Bits(const FloatCounts& counts) const;
  // The most bits that one value can take.
  static constexpr int kMaxBits = 2 * kMaxPrefixBits + 8 + 1 + 22;

  // Appends the values to `writer`. Their symbols must be among those that were counted.
  void Encode(std::span<const float> values, BitWriter& writer) const;

 private:
  friend class FloatDecoder;
  FloatCode(int top, const PrefixCode& exponents, const PrefixCode& lengths)
      : top_(top), exponents_(exponents), lengths_(lengths) {}

  int top_;
  PrefixCode exponents_, lengths_;
};

// Decodes what FloatCode::Encode has written.
class FloatDecoder {
 public:
  explicit FloatDecoder(const FloatCode& code)
      : top_(code.top_), exponents_(code.exponents_), lengths_(code.lengths_) {}

  // Fills `values`. Returns false if an exponent is one that no finite number has. Whether it
  // has read beyond the end of the bits must be asked of the reader.
  bool Decode(BitReader& reader, std::span<float> values) const;

 private:
  int top_;
  PrefixDecoder exponents_, lengths_;
};

}  // namespace elastiquant
