#include "elastiquant/coding/float_code.h"

#include <algorithm>
#include <bit>

namespace elastiquant {
namespace {

constexpr int kMantissaBits = 23;
constexpr int kInfiniteExponent = 255;
constexpr int kEscape = kFloatExponentSymbols - 1;

// A float taken apart.
struct Parts {
  explicit Parts(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    sign = bits >> 31;
    exponent = static_cast<int>(bits >> kMantissaBits & 0xFF);
    const uint32_t mantissa = bits & ((1u << kMantissaBits) - 1);
    length = mantissa == 0 ? 0 : kMantissaBits - std::countr_zero(mantissa);
    // The last bit of `length` is one, which needs no saying.
    plain_length = std::max(length - 1, 0);
    plain = mantissa >> (kMantissaBits - plain_length);
  }
  uint32_t sign;
  int exponent;
  int length;
  int plain_length;
  uint32_t plain;
};

int ExponentSymbol(int top, int exponent) { return std::min(top - exponent, kEscape); }

uint64_t SumOf(const PrefixCode& code, std::span<const uint64_t> counts) {
  uint64_t bits = 0;
  for (size_t s = 0; s < counts.size(); ++s) {
    bits += counts[s] * static_cast<uint64_t>(code.length(static_cast<int>(s)));
  }
  return bits;
}

}  // namespace

void FloatCounts::Add(std::span<const float> values) {
  for (const float value : values) {
    const Parts parts(value);
    const int symbol = ExponentSymbol(top, parts.exponent);
    ++exponents[static_cast<size_t>(symbol)];
    ++lengths[static_cast<size_t>(parts.length)];
    plain_bits += static_cast<uint64_t>(1 + parts.plain_length + (symbol == kEscape ? 8 : 0));
  }
}

void FloatCounts::Add(const FloatCounts& other) {
  for (size_t s = 0; s < exponents.size(); ++s) exponents[s] += other.exponents[s];
  for (size_t s = 0; s < lengths.size(); ++s) lengths[s] += other.lengths[s];
  plain_bits += other.plain_bits;
}

FloatCode::FloatCode(const FloatCounts& counts)
    : top_(counts.top),
      exponents_(PrefixCode::Optimal(counts.exponents)),
      lengths_(PrefixCode::Optimal(counts.lengths)) {}

Result<FloatCode> FloatCode::Read(std::span<const uint8_t> in, size_t* bytes) {
  if (in.empty()) return CorruptData("the table of the floats is cut short");
  const int top = in[0];
  if (top >= kInfiniteExponent) return CorruptData("the largest exponent is that of no number");
  size_t first = 0, second = 0;
  EQ_ASSIGN_OR_RETURN(const PrefixCode exponents,
                      PrefixCode::Read(in.subspan(1), kFloatExponentSymbols, &first));
  EQ_ASSIGN_OR_RETURN(const PrefixCode lengths,
                      PrefixCode::Read(in.subspan(1 + first), kFloatLengthSymbols, &second));
  *bytes = 1 + first + second;
  return FloatCode(top, exponents, lengths);
}

size_t FloatCode::Write(uint8_t* out) const {
  out[0] = static_cast<uint8_t>(top_);
  const size_t first = exponents_.Write(out + 1);
  return 1 + first + lengths_.Write(out + 1 + first);
}

uint64_t FloatCode::Bits(const FloatCounts& counts) const {
  return counts.plain_bits + SumOf(exponents_, counts.exponents) +
         SumOf(lengths_, counts.lengths);
}

void FloatCode::Encode(std::span<const float> values, BitWriter& writer) const {
  for (const float value : values) {
    const Parts parts(value);
    const int symbol = ExponentSymbol(top_, parts.exponent);
    uint64_t bits = exponents_.code(symbol);
    int length = exponents_.length(symbol);
    const auto append = [&](uint64_t more, int count) {
      bits = bits << count | more;
      length += count;
    };
    if (symbol == kEscape) append(static_cast<uint64_t>(parts.exponent), 8);
    append(lengths_.code(parts.length), lengths_.length(parts.length));
    append(parts.sign, 1);
    append(parts.plain, parts.plain_length);
    writer.Add(bits, length);
    writer.Flush();
  }
}

bool FloatDecoder::Decode(BitReader& reader, std::span<float> values) const {
  bool good = true;
  const auto take = [&](int count) -> uint32_t {
    if (count == 0) return 0;
    const auto bits = static_cast<uint32_t>(reader.Peek(count));
    reader.Skip(count);
    return bits;
  };
  for (float& value : values) {
    reader.Reload();
    const int symbol = exponents_.Next(reader);
    const int exponent = symbol == kEscape ? static_cast<int>(take(8)) : top_ - symbol;
    const int length = lengths_.Next(reader);
    const uint32_t sign = take(1);
    uint32_t mantissa = 0;
    if (length > 0) mantissa = (take(length - 1) << 1 | 1) << (kMantissaBits - length);
    good &= exponent >= 0 && exponent < kInfiniteExponent;
    value = std::bit_cast<float>(sign << 31 | static_cast<uint32_t>(exponent & 0xFF) << 23 |
                                 mantissa);
  }
  return good;
}

}  // namespace elastiquant
