// Finite floats as bits, exactly: the exponent below the message's largest, and the number of
// bits of the mantissa down to its last one, are symbols with a prefix code each; the sign and
// those bits follow as they are. A binary16 value costs what it costs there, less what its
// exponent's entropy saves; a sum of some of them little more.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "elastiquant/coding/prefix_code.h"

namespace elastiquant {

// The largest exponent, less the value's; the last symbol is followed by the exponent in 8
// bits.
inline constexpr int kFloatExponentSymbols = 63;
inline constexpr int kFloatLengthSymbols = 24;

// What one or more runs of values have, of which `top` is the largest exponent (of 8 bits).
struct FloatCounts {
  explicit FloatCounts(int top_exponent) : top(top_exponent) {}

  int top;
  std::array<uint64_t, kFloatExponentSymbols> exponents{};
  std::array<uint64_t, kFloatLengthSymbols> lengths{};
  uint64_t plain_bits = 0;  // that follow the symbols

  void Add(std::span<const float> values);
  void Add(const FloatCounts& other);
};

class FloatCode {
 public:
  // Some count is not 0.
  explicit FloatCode(const FloatCounts& counts);
  // What Write has written, and its bytes. Fails with kCorruptData.
  static Result<FloatCode> Read(std::span<const uint8_t> in, size_t* bytes);
  // The largest exponent (u8), and the tables of the two prefix codes.
  size_t Write(uint8_t* out) const;
  static constexpr size_t kMaxTableBytes = 1 + 2 * PrefixCode::kMaxTableBytes;

  int top() const { return top_; }
  // That Encode adds for runs of these counts.
  uint64_t Bits(const FloatCounts& counts) const;
  // Of one value, whatever it is.
  static constexpr int kMaxBits = 2 * kMaxPrefixBits + 8 + 1 + 22;

  void Encode(std::span<const float> values, BitWriter& writer) const;

 private:
  friend class FloatDecoder;
  FloatCode(int top, const PrefixCode& exponents, const PrefixCode& lengths)
      : top_(top), exponents_(exponents), lengths_(lengths) {}

  int top_;
  PrefixCode exponents_, lengths_;
};

class FloatDecoder {
 public:
  explicit FloatDecoder(const FloatCode& code)
      : top_(code.top_), exponents_(code.exponents_), lengths_(code.lengths_) {}

  // False if an exponent is that of no finite number; reading beyond the end of the bits is the
  // reader's to tell.
  bool Decode(BitReader& reader, std::span<float> values) const;

 private:
  int top_;
  PrefixDecoder exponents_, lengths_;
};

}  // namespace elastiquant
