// Codes ascending positions by the gaps between them. The bit width of a gap and the bit next
// to its leading one make a symbol with a prefix code, and the bits below follow as they are.
// The coordinates of gradients that are kept stand close together, in layers and filters: their
// gaps are far from geometric, and a code that is fitted to them takes half of Rice's bits or
// less. On random positions it costs 0.1 bits more than their entropy.
//
// Each position may have a mark: none, plus or minus. Marked and unmarked positions have
// symbols of their own, so that it costs the entropy to say whether a position is marked, and
// one bit to say which mark it has.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/coding/prefix_code.h"

namespace elastiquant {

enum class GapMark : uint8_t { kNone = 0, kPlus = 2, kMinus = 3 };

// The gap 1 is symbol 0; a gap of w >= 2 bits with the next bit b is symbol 2 (w - 1) - 1 + b.
inline constexpr int kGapSymbols = 63;  // gaps are below 2^32

// Positions of which the first is at least `next`: the gap of the first is first + 1 - next.
struct GapRun {
  uint32_t next = 0;
  std::span<const uint32_t> positions;  // ascending
  std::span<const GapMark> marks;       // as many, or none if no position is marked
};

// Counts the symbols of one or more runs.
struct GapCounts {
  std::array<uint64_t, kMaxPrefixSymbols> symbols{};
  uint64_t plain_bits = 0;  // the bits that follow the symbols

  void Add(const GapRun& run);
  void Add(const GapCounts& other);
};

// A code that is fitted to counts.
class GapCode {
 public:
  // Makes the code that is the shortest for these counts, of which some is not 0. All of its
  // runs have marks if `marked` is set, and none has otherwise.
  GapCode(const GapCounts& counts, bool marked);
  // Reads what Write has written and sets *bytes to its size. Fails with kCorruptData if it is
  // cut short or not a valid code.
  static Result<GapCode> Read(std::span<const uint8_t> in, bool marked, size_t* bytes);
  // Writes the table of the prefix code and returns the number of bytes written.
  size_t Write(uint8_t* out) const { return code_.Write(out); }
  static constexpr size_t kMaxTableBytes = PrefixCode::kMaxTableBytes;

  // Returns the number of bits that Encode adds for runs of these counts.
  uint64_t Bits(const GapCounts& counts) const;
  // Returns an upper bound on the bits of `positions` positions below n, whatever they are,
  // under the code that is fitted to them. (A code of 7 bits for each symbol would do, and the
  // bits below a gap's symbol are fewer than log2 of the gap.)
  static uint64_t MaxBits(uint64_t positions, uint64_t n);

  // Appends a run to `writer`. Its symbols must be among those that were counted.
  void Encode(const GapRun& run, BitWriter& writer) const;

 private:
  friend class GapDecoder;
  GapCode(const PrefixCode& code, bool marked) : code_(code), marked_(marked) {}

  PrefixCode code_;
  bool marked_;
};

// Decodes what GapCode::Encode has written.
class GapDecoder {
 public:
  explicit GapDecoder(const GapCode& code) : decoder_(code.code_), marked_(code.marked_) {}

  // Reads positions.size() positions, the first of which is at least `next`. marks.size() is
  // the same if the code has marks. Returns false if a position is above `last`, or if the last
  // one is below it. Whether it has read beyond the end of the bits must be asked of the
  // reader.
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
