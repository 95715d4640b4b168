// Ascending positions as bits: the gap from each to the one before has a bit width and, behind
// its leading one, a next bit; these two are a symbol with a prefix code, and the bits below
// follow as they are. Kept coordinates of gradients stand close together, in layers and
// filters: their gaps are far from geometric, and a code that is fitted takes half of Rice's
// bits or less. On random positions it costs 0.1 bits more than their entropy.
//
// Each position may have a mark: none, plus or minus. Marked and unmarked positions have
// symbols of their own, so that whether a position is marked costs its entropy; which mark
// costs a bit.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/coding/prefix_code.h"

namespace elastiquant {

enum class GapMark : uint8_t { kNone = 0, kPlus = 2, kMinus = 3 };

// The gap 1 is symbol 0; a gap of w >= 2 bits with the next bit b is symbol 2 (w - 1) - 1 + b.
inline constexpr int kGapSymbols = 63;  // gaps are below 2^32

// Of positions of which the first could be `next` at the least: its gap is first + 1 - next.
struct GapRun {
  uint32_t next = 0;
  std::span<const uint32_t> positions;  // ascending
  std::span<const GapMark> marks;       // as many, or none if no position is marked
};

// What one or more runs have.
struct GapCounts {
  std::array<uint64_t, kMaxPrefixSymbols> symbols{};
  uint64_t plain_bits = 0;  // that follow the symbols

  void Add(const GapRun& run);
  void Add(const GapCounts& other);
};

class GapCode {
 public:
  // For runs that all have marks, or have none. Some count is not 0.
  GapCode(const GapCounts& counts, bool marked);
  // What Write has written, and its bytes. Fails with kCorruptData.
  static Result<GapCode> Read(std::span<const uint8_t> in, bool marked, size_t* bytes);
  size_t Write(uint8_t* out) const { return code_.Write(out); }
  static constexpr size_t kMaxTableBytes = PrefixCode::kMaxTableBytes;

  // That Encode adds for runs of these counts.
  uint64_t Bits(const GapCounts& counts) const;
  // No more than this, whatever the positions, as long as they are below n: a code of 7 bits
  // for each symbol would do, and bits below the symbol's are fewer than log2 of the gap.
  static uint64_t MaxBits(uint64_t positions, uint64_t n);

  void Encode(const GapRun& run, BitWriter& writer) const;

 private:
  friend class GapDecoder;
  GapCode(const PrefixCode& code, bool marked) : code_(code), marked_(marked) {}

  PrefixCode code_;
  bool marked_;
};

class GapDecoder {
 public:
  explicit GapDecoder(const GapCode& code) : decoder_(code.code_), marked_(code.marked_) {}

  // Reads positions.size() positions, the first of them at least `next`. marks.size() is the
  // same if the code has marks. False if one is above `last`, or the last is below it; reading
  // beyond the end of the bits is the reader's to tell.
  bool Decode(BitReader& reader, uint32_t next, uint32_t last, std::span<uint32_t> positions,
              std::span<GapMark> marks) const;

 private:
  template <bool kMarked>
  bool DecodeAs(BitReader& reader, uint32_t next, uint32_t last, std::span<uint32_t> positions,
                std::span<GapMark> marks) const;

  PrefixDecoder decoder_;
  bool marked_;
};

}  // namespace elastiquant
