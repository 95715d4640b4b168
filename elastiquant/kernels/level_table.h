// Tables that make a level set ready for the kernels. The set is 0 = l_0 < l_1 < ... < l_last =
// 1, or one without zero, 0 < l_0 < ... < l_last = 1, whose lowest interval is [-l_0, l_0].
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace elastiquant {

inline constexpr size_t kMaxLevels = 128;

// Quantisers use this to find the interval [l_j, l_{j+1}] of an r in [0, 1].
struct LevelTable {
  // The number of levels, 2 to kMaxLevels with 0 and 1 included. Sets without zero have 1 to
  // kMostWithoutZero levels, and as many intervals.
  static constexpr size_t kMostWithoutZero = 8;
  size_t count = 0;
  bool has_zero = true;
  // Where the intervals begin; without zero they begin at -l_0, l_0, l_1, ..., l_(last-1). The
  // entries past the end are infinity, which no r reaches.
  alignas(64) std::array<float, kMaxLevels + 16> level{};
  // The inverse widths of the intervals. With zero the entry of the last level is 0, since no
  // interval begins there.
  alignas(64) std::array<float, kMaxLevels + 16> inverse_width{};
  // Whether 1 / width stays finite when it is multiplied by 2^30, the number of places that the
  // width of an interval is cut into.
  bool places_fit = false;

  // Where the search begins, by the leading bits of the float r: bin max(bits(r) >> shift,
  // first_bin) - first_bin begins at or above level start[bin], and at most `advance` levels
  // more lie inside the bin.
  static constexpr size_t kMaxBins = 2048;
  int shift = 0;
  int32_t first_bin = 0;
  int advance = 0;
  alignas(64) std::array<int32_t, kMaxBins> start{};

  // A shorter way for at most 8 levels, if 16 bins with at most one level inside each suffice
  // (as they do for most sets). For max(bits(r) >> shift, first_bin) mod 16 the two tables have
  // the level below the bin, and the bits of the level above that, less 1.
  bool has_few_bins = false;
  alignas(64) std::array<int32_t, 16> few_start{};
  alignas(64) std::array<int32_t, 16> few_bound{};
};

// Fills the table. `levels` are as above and strictly increasing with gaps >= 2^-126, and l_0
// >= 2^-126 if it is not 0.
void FillLevelTable(std::span<const float> levels, LevelTable* table);

// Dequantisers use this to look up the signed level of every code of `bits` bits; 2^bits
// entries are used. Codes beyond the levels give 0.
struct ValueTable {
  int bits = 0;
  alignas(64) std::array<float, 256> value{};
};
void FillValueTable(std::span<const float> levels, int bits, ValueTable* table);

}  // namespace elastiquant
