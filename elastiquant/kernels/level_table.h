// A level set 0 = l_0 < l_1 < ... < l_last = 1 made ready for the kernels; or one without zero,
// 0 < l_0 < ... < l_last = 1, whose lowest interval is [-l_0, l_0].
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace elastiquant {

inline constexpr size_t kMaxLevels = 128;

// For quantising: finds the interval [l_j, l_{j+1}] of an r in [0, 1].
struct LevelTable {
  // Levels, 0 and 1 included: 2 to kMaxLevels. Without zero there are 1 to kMostWithoutZero, as
  // many as intervals.
  static constexpr size_t kMostWithoutZero = 8;
  size_t count = 0;
  bool has_zero = true;
  // Where intervals begin; without zero at -l_0, l_0, l_1, ..., l_(last-1). Past the end stands
  // infinity, which no r reaches.
  alignas(64) std::array<float, kMaxLevels + 16> level{};
  // 1 / their widths; with zero 0 for the last level, where none begins.
  alignas(64) std::array<float, kMaxLevels + 16> inverse_width{};
  // Whether 1 / width stays finite when it is multiplied by all places that a width has, 2^30.
  bool places_fit = false;

  // Where to begin the search: by the leading bits of the float r, bin
  // max(bits(r) >> shift, first_bin) - first_bin begins at or above level start[bin], and at
  // most `advance` levels more lie inside the bin.
  static constexpr size_t kMaxBins = 2048;
  int shift = 0;
  int32_t first_bin = 0;
  int advance = 0;
  alignas(64) std::array<int32_t, kMaxBins> start{};

  // For at most 8 levels, if 16 bins with at most one level inside each suffice (as they do
  // for most): by max(bits(r) >> shift, first_bin) mod 16, the level below the bin and the bits
  // of the level above that, less 1.
  bool has_few_bins = false;
  alignas(64) std::array<int32_t, 16> few_start{};
  alignas(64) std::array<int32_t, 16> few_bound{};
};

// levels: as above, strictly increasing with gaps >= 2^-126, l_0 >= 2^-126 if it is not 0.
void FillLevelTable(std::span<const float> levels, LevelTable* table);

// For dequantising: the signed level of every code of `bits` bits, 2^bits of them used. Codes
// beyond the levels give 0.
struct ValueTable {
  int bits = 0;
  alignas(64) std::array<float, 256> value{};
};
void FillValueTable(std::span<const float> levels, int bits, ValueTable* table);

}  // namespace elastiquant
