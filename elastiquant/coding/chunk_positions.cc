#include "elastiquant/coding/chunk_positions.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "elastiquant/coding/fixed.h"
#include "elastiquant/coding/rans.h"
#include "elastiquant/kernels/pack.h"

namespace elastiquant {
namespace {

// low bits (u8), code bits (u8), bytes of the coded codes (u32)
constexpr size_t kFrontBytes = 6;
constexpr int kMaxLowBits = 8;
constexpr int kLeastCodeBits = 2, kMaxCodeBits = 8;

Status CorruptPositions(const char* what) {
  return CorruptData(std::string("chunk positions: ") + what);
}

// A gap is code << low_bits | low, but for the largest code, which stands for itself and all
// above it: how far above, u16, is in a list behind.
struct GapSplit {
  int low_bits = 0;
  int code_bits = kMaxCodeBits;

  uint32_t escape() const { return (1u << code_bits) - 1; }
};

// Calls visit(i, gap) for each position.
template <typename Visit>
void VisitGaps(std::span<const uint16_t> counts, const uint16_t* positions,
               const Visit& visit) {
  size_t i = 0;
  for (const uint16_t count : counts) {
    uint32_t next = 0;
    for (const size_t end = i + count; i < end; ++i) {
      visit(i, uint32_t{positions[i]} - next);
      next = uint32_t{positions[i]} + 1;
    }
  }
}

// log2(x) in 1/256 bits, wrong by less than 2 of them. x >= 1
uint64_t GapLog2(uint64_t x) {
  const int exponent = static_cast<int>(std::bit_width(x)) - 1;
  const uint64_t part = (exponent > 8 ? x >> (exponent - 8) : x << (8 - exponent)) - 256;
  return 256 * static_cast<uint64_t>(exponent) + part + (part * (256 - part) * 89 >> 16);
}

// How often each code occurs, if gaps lose so many low bits. What is beyond the last cell is
// counted there: it escapes in any case.
constexpr size_t kMostCells = 1024;
struct CodeCounts {
  std::array<uint32_t, kMostCells> of{};
  size_t cells = 0;  // the largest code and 1

  void DropBit() {
    for (size_t i = 0; i < cells; i += 2) of[i / 2] = of[i] + (i + 1 < cells ? of[i + 1] : 0);
    cells = (cells + 1) / 2;
  }
};

// What all of it costs, in 1/256 bits, with the least number of code bits that has all codes,
// or the most that there are.
uint64_t CostOf(const CodeCounts& counts, size_t n, GapSplit* split) {
  split->code_bits =
      std::clamp(static_cast<int>(std::bit_width(counts.cells)), kLeastCodeBits, kMaxCodeBits);
  const size_t escape = split->escape();
  uint64_t entropy = n * GapLog2(n), escaped = 0, used = 0;
  for (size_t i = 0; i < counts.cells; ++i) {
    const uint64_t count = counts.of[i];
    if (count == 0) continue;
    if (i >= escape) {
      escaped += count;
      continue;
    }
    entropy -= count * GapLog2(count);
    ++used;
  }
  // The numbers of those that escape are about as good as free, but for what is listed. In a
  // table a code that does not occur takes one bit, and one that does about eight.
  const uint64_t table = (uint64_t{1} << split->code_bits) + 7 * used;
  const uint64_t plain = n * static_cast<uint64_t>(split->low_bits) + 16 * escaped + table;
  return entropy + 256 * plain;
}

// Tries the splits around that of random positions, which keeps two bits of the mean gap.
GapSplit ChooseSplit(std::span<const uint16_t> counts, std::span<const uint16_t> positions) {
  const size_t n = positions.size();
  if (n == 0) return {0, kLeastCodeBits};
  uint64_t sum = 0;
  uint32_t largest = 0;
  VisitGaps(counts, positions.data(), [&](size_t, uint32_t gap) {
    sum += gap;
    largest = std::max(largest, gap);
  });
  const int mean_bits = static_cast<int>(std::bit_width(sum / n));
  int low_bits = std::clamp(mean_bits - 4, 0, kMaxLowBits);
  const auto cell = [&](uint32_t gap) {
    return std::min<size_t>(gap >> low_bits, kMostCells - 1);
  };
  CodeCounts codes;
  codes.cells = cell(largest) + 1;
  VisitGaps(counts, positions.data(), [&](size_t, uint32_t gap) { ++codes.of[cell(gap)]; });
  GapSplit best;
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (; low_bits <= std::min(mean_bits + 1, kMaxLowBits); ++low_bits) {
    GapSplit split{low_bits};
    const uint64_t cost = CostOf(codes, n, &split);
    if (cost < least) {
      least = cost;
      best = split;
    }
    codes.DropBit();
  }
  return best;
}

}  // namespace

size_t MaxChunkPositionBytes(size_t n) {
  return kFrontBytes + n * kMaxLowBits / 8 + MaxRansBytes(n, kMaxCodeBits) + 2 * n;
}

Result<size_t> EncodeChunkPositions(std::span<const uint16_t> counts,
                                    std::span<const uint16_t> positions,
                                    std::span<uint8_t> scratch, std::span<uint8_t> out) {
  const size_t n = positions.size();
  const GapSplit split = ChooseSplit(counts, positions);
  const uint32_t escape = split.escape(), mask = (1u << split.low_bits) - 1;
  uint8_t* const codes = scratch.data();
  uint8_t* const lows = codes + n;
  size_t escapes = 0;
  VisitGaps(counts, positions.data(), [&](size_t i, uint32_t gap) {
    const uint32_t code = gap >> split.low_bits;
    escapes += code >= escape ? 1 : 0;
    codes[i] = static_cast<uint8_t>(std::min(code, escape));
    lows[i] = static_cast<uint8_t>(gap & mask);
  });
  uint8_t* next = out.data() + kFrontBytes;
  if (split.low_bits > 0) {
    PackCodes(lows, n, split.low_bits, next);
    next += PackedBytes(n, split.low_bits);
  }
  EQ_ASSIGN_OR_RETURN(const size_t coded,
                      EncodeRans({codes, n}, split.code_bits,
                                 out.subspan(static_cast<size_t>(next - out.data()))));
  next += coded;
  if (escapes > 0) {
    VisitGaps(counts, positions.data(), [&](size_t, uint32_t gap) {
      const uint32_t code = gap >> split.low_bits;
      if (code < escape) return;
      const auto above = static_cast<uint16_t>(code - escape);
      std::memcpy(next, &above, sizeof(above));
      next += sizeof(above);
    });
  }
  out[0] = static_cast<uint8_t>(split.low_bits);
  out[1] = static_cast<uint8_t>(split.code_bits);
  const auto size = static_cast<uint32_t>(coded);
  std::memcpy(out.data() + 2, &size, sizeof(size));
  return static_cast<size_t>(next - out.data());
}

Result<size_t> DecodeChunkPositions(std::span<const uint8_t> in,
                                    std::span<const uint16_t> counts,
                                    std::span<uint8_t> scratch, std::span<uint16_t> positions) {
  const size_t n = positions.size();
  if (in.size() < kFrontBytes) return CorruptPositions("they end before their front does");
  const GapSplit split{in[0], in[1]};
  uint32_t coded = 0;
  std::memcpy(&coded, in.data() + 2, sizeof(coded));
  if (split.low_bits > kMaxLowBits || split.code_bits < kLeastCodeBits ||
      split.code_bits > kMaxCodeBits) {
    return CorruptPositions("a number of bits is out of range");
  }
  const size_t low_bytes = split.low_bits > 0 ? PackedBytes(n, split.low_bits) : 0;
  std::span<const uint8_t> rest = in.subspan(kFrontBytes);
  if (rest.size() < low_bytes || rest.size() - low_bytes < coded) {
    return CorruptPositions("they end too early");
  }
  uint8_t* const codes = scratch.data();
  uint8_t* const lows = codes + n;
  if (low_bytes > 0) {
    EQ_RETURN_IF_ERROR(DecodeFixed(rest.first(low_bytes), split.low_bits, {lows, n}));
  } else {
    std::fill_n(lows, n, uint8_t{0});
  }
  EQ_RETURN_IF_ERROR(DecodeRans(rest.subspan(low_bytes, coded), split.code_bits, {codes, n}));
  rest = rest.subspan(low_bytes + coded);
  const uint32_t escape = split.escape();
  size_t used = 0, i = 0;
  for (const uint16_t count : counts) {
    uint64_t next = 0;
    for (const size_t end = i + count; i < end; ++i) {
      uint64_t code = codes[i];
      if (code == escape) {
        if (rest.size() - used < 2) return CorruptPositions("they end too early");
        uint16_t above = 0;
        std::memcpy(&above, rest.data() + used, sizeof(above));
        used += sizeof(above);
        code += above;
      }
      next += code << split.low_bits | lows[i];
      positions[i] = static_cast<uint16_t>(next);
      ++next;
    }
    if (next > kMaxChunk) return CorruptPositions("one is beyond the longest chunk");
  }
  return in.size() - rest.size() + used;
}

}  // namespace elastiquant
