#include "elastiquant/coding/elias.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "elastiquant/coding/bit_stream.h"
#include "elastiquant/coding/elias_omega.h"

namespace elastiquant {
namespace {

constexpr size_t kFlushSlack = 8;  // BitWriter stores whole words

struct ShortCode {
  uint16_t bits = 0;
  uint16_t length = 0;  // 0: there is no code
};

constexpr ShortCode Shorten(OmegaCode code) {
  return {static_cast<uint16_t>(code.bits), static_cast<uint16_t>(code.length)};
}

constexpr std::array<ShortCode, 256> MakeGapCodes() {
  std::array<ShortCode, 256> codes;
  for (uint64_t gap = 1; gap < 256; ++gap) codes[gap] = Shorten(EncodeOmega(gap));
  return codes;
}
constexpr std::array<ShortCode, 256> kGapCodes = MakeGapCodes();

// Sign bit and level of every code byte; none for zero, negative zero and codes too wide.
std::array<ShortCode, 256> MakeValueCodes(int bits) {
  std::array<ShortCode, 256> codes;
  const size_t half = size_t{1} << (bits - 1);
  for (size_t level = 1; level < half; ++level) {
    const OmegaCode omega = EncodeOmega(level);
    const uint64_t negative = uint64_t{1} << omega.length;
    codes[level] = Shorten({omega.bits, omega.length + 1});
    codes[half + level] = Shorten({negative | omega.bits, omega.length + 1});
  }
  return codes;
}

// Calls visit(i) for every nonzero byte of `codes`, in order.
template <typename Visit>
void ForEachNonzero(std::span<const uint8_t> codes, Visit visit) {
  constexpr uint64_t kLow7 = 0x7F7F7F7F7F7F7F7Fu;
  size_t i = 0;
  for (; i + 8 <= codes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, codes.data() + i, 8);
    // The highest bit of each byte that is not zero.
    uint64_t nonzero = (((word & kLow7) + kLow7) | word) & ~kLow7;
    for (; nonzero != 0; nonzero &= nonzero - 1) {
      visit(i + static_cast<size_t>(std::countr_zero(nonzero)) / 8);
    }
  }
  for (; i < codes.size(); ++i) {
    if (codes[i] != 0) visit(i);
  }
}

// False if some code has no codeword.
bool EncodeRun(std::span<const uint8_t> codes, const std::array<ShortCode, 256>& values,
               BitWriter& writer) {
  const auto zeros = std::count(codes.begin(), codes.end(), uint8_t{0});
  const OmegaCode count = EncodeOmega(codes.size() - static_cast<size_t>(zeros) + 1);
  writer.Add(count.bits, count.length);
  writer.Flush();

  bool all_known = true;
  size_t next = 0;  // one after the last nonzero
  ForEachNonzero(codes, [&](size_t i) {
    const size_t gap = i - next + 1;
    next = i + 1;
    const ShortCode value = values[codes[i]];
    if (value.length == 0) {
      all_known = false;
      return;
    }
    if (gap < kGapCodes.size()) {
      writer.Add(kGapCodes[gap].bits, kGapCodes[gap].length);
    } else {
      const OmegaCode code = EncodeOmega(gap);
      writer.Add(code.bits, code.length);
      writer.Flush();
    }
    writer.Add(value.bits, value.length);
    writer.Flush();
  });
  return all_known;
}

// One nonzero whose code has at most kPeekBits bits.
struct ShortNonzero {
  uint8_t length = 0;  // 0: the code is longer
  uint8_t sign = 0;
  uint8_t level = 0;
  uint8_t gap = 0;
};
constexpr int kPeekBits = 12;
using NonzeroTable = std::array<ShortNonzero, size_t{1} << kPeekBits>;

// What every kPeekBits bits begin with. Filled from the encoder's side: each nonzero short
// enough owns all the entries that start with its code.
NonzeroTable MakeNonzeroTable() {
  NonzeroTable table;
  for (uint64_t gap = 1; EncodeOmega(gap).length <= kPeekBits - 2; ++gap) {
    const OmegaCode front = EncodeOmega(gap);
    for (uint64_t level = 1; level < 128; ++level) {
      const OmegaCode back = EncodeOmega(level);
      const int length = front.length + 1 + back.length;
      if (length > kPeekBits) break;
      for (uint64_t sign = 0; sign < 2; ++sign) {
        const uint64_t bits = (front.bits << 1 | sign) << back.length | back.bits;
        const size_t first = bits << (kPeekBits - length);
        std::fill_n(table.begin() + first, size_t{1} << (kPeekBits - length),
                    ShortNonzero{static_cast<uint8_t>(length), static_cast<uint8_t>(sign),
                                 static_cast<uint8_t>(level), static_cast<uint8_t>(gap)});
      }
    }
  }
  return table;
}

const NonzeroTable& GetNonzeroTable() {
  static const NonzeroTable table = MakeNonzeroTable();
  return table;
}

Status CorruptElias(const char* what) {
  return CorruptData(std::string("elias coding: ") + what);
}

Status DecodeRun(BitReader& reader, int bits, const NonzeroTable& table,
                 std::span<uint8_t> codes) {
  uint64_t count_plus_1;
  reader.Reload();
  if (!ReadOmega(reader, &count_plus_1) || count_plus_1 > codes.size() + 1) {
    return CorruptElias("more nonzeros than the run has codes");
  }
  std::fill(codes.begin(), codes.end(), uint8_t{0});
  const uint64_t half = uint64_t{1} << (bits - 1);
  uint64_t used = 0;  // codes up to the last nonzero
  for (uint64_t left = count_plus_1 - 1; left != 0; --left) {
    reader.Reload();
    const ShortNonzero& known = table[reader.Peek(kPeekBits)];
    uint64_t gap = known.gap;
    uint64_t sign = known.sign;
    uint64_t level = known.level;
    if (known.length != 0) {
      reader.Skip(known.length);
    } else {
      if (!ReadOmega(reader, &gap)) return CorruptElias("a distance beyond the run");
      reader.Reload();
      sign = reader.Peek(1);
      reader.Skip(1);
      if (!ReadOmega(reader, &level)) return CorruptElias("a level beyond the last");
    }
    if (gap > codes.size() - used) return CorruptElias("a distance beyond the run");
    if (level >= half) return CorruptElias("a level beyond the last");
    used += gap;
    codes[used - 1] = static_cast<uint8_t>(sign * half + level);
  }
  return reader.Overrun() ? CorruptElias("it ends too early") : Status::Ok();
}

}  // namespace

size_t MaxEliasBytes(size_t n, int bits, size_t runs) {
  // Nothing is longer than nonzeros throughout: distance 1 takes one bit, and skipping a code
  // saves more than the longer distance costs.
  const uint64_t top = (uint64_t{1} << (bits - 1)) - 1;
  const size_t code_bits = 2 + static_cast<size_t>(EncodeOmega(top).length);
  const size_t count_bits =
      static_cast<size_t>(EncodeOmega(std::min<uint64_t>(n + 1, kMaxOmegaValue)).length);
  return (n * code_bits + runs * count_bits + 7) / 8 + kFlushSlack;
}

Result<size_t> EncodeElias(std::span<const uint8_t> codes, int bits, size_t run,
                           std::span<uint8_t> out) {
  if (run == 0) return InvalidArgument("elias coding: a run needs at least one code");
  if (std::min(run, codes.size()) >= kMaxOmegaValue) {
    return InvalidArgument("elias coding: a run must be shorter than 2^32 codes");
  }
  const std::array<ShortCode, 256> values = MakeValueCodes(bits);
  BitWriter writer(out);
  for (size_t left = codes.size(); left != 0;) {
    const size_t length = std::min(run, left);
    if (!EncodeRun(codes.subspan(codes.size() - left, length), values, writer)) {
      return InvalidArgument("elias coding: a code is a negative zero or does not fit in " +
                             std::to_string(bits) + " bits");
    }
    left -= length;
  }
  size_t size = 0;
  if (!writer.Finish(&size)) {
    return BufferTooSmall("elias coding: " + std::to_string(out.size()) +
                          " bytes are too few: MaxIndexBytes gives the size needed");
  }
  return size;
}

Status DecodeElias(std::span<const uint8_t> in, int bits, size_t run,
                   std::span<uint8_t> codes) {
  if (run == 0) return InvalidArgument("elias coding: a run needs at least one code");
  const NonzeroTable& table = GetNonzeroTable();
  BitReader reader(in);
  for (size_t left = codes.size(); left != 0;) {
    const size_t length = std::min(run, left);
    EQ_RETURN_IF_ERROR(
        DecodeRun(reader, bits, table, codes.subspan(codes.size() - left, length)));
    left -= length;
  }
  return reader.AtFinish() ? Status::Ok() : CorruptElias("bits are left after the last run");
}

}  // namespace elastiquant
