#include "elastiquant/kernels/level_table.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace elastiquant {
namespace {

constexpr int32_t kOneBits = 0x3F800000;

// Fills the search bins at this shift and returns the most levels inside one bin, or kMaxLevels
// if the bins would be too many.
int FillBins(std::span<const float> levels, int shift, LevelTable* table) {
  table->shift = shift;
  table->first_bin = std::bit_cast<int32_t>(levels[1]) >> shift;
  const int32_t bins = (kOneBits >> shift) - table->first_bin + 1;
  if (bins > static_cast<int32_t>(LevelTable::kMaxBins)) return static_cast<int>(kMaxLevels);
  size_t j = 0;
  int most = 0;
  for (int32_t bin = 0; bin < bins; ++bin) {
    const int32_t begin = bin == 0 ? 0 : (bin + table->first_bin) << shift;
    const int32_t end = (bin + table->first_bin + 1) << shift;
    while (j + 1 < levels.size() && std::bit_cast<int32_t>(levels[j + 1]) <= begin) ++j;
    size_t last = j;
    while (last + 1 < levels.size() && std::bit_cast<int32_t>(levels[last + 1]) < end) ++last;
    table->start[static_cast<size_t>(bin)] = static_cast<int32_t>(j);
    most = std::max(most, static_cast<int>(last - j));
  }
  return most;
}

void ChooseBins(std::span<const float> levels, LevelTable* table) {
  int best_shift = 23;
  int best = static_cast<int>(kMaxLevels);
  for (int shift = 23; shift >= 0 && best > 1; --shift) {
    const int most = FillBins(levels, shift, table);
    if (most < best) {
      best = most;
      best_shift = shift;
    }
    if (most == static_cast<int>(kMaxLevels)) break;  // even more bins further on
  }
  table->advance = FillBins(levels, best_shift, table);
}

void ChooseFewBins(std::span<const float> levels, LevelTable* table) {
  for (int shift = 23; shift > 0 && !table->has_few_bins; --shift) {
    const int most = FillBins(levels, shift, table);
    const int32_t bins = (kOneBits >> shift) - table->first_bin + 1;
    if (bins > 16) return;
    table->has_few_bins = most <= 1;
  }
  for (int32_t bin = 0; bin < 16; ++bin) {
    const auto at = static_cast<size_t>((table->first_bin + bin) % 16);
    const int32_t start = table->start[static_cast<size_t>(bin)];
    table->few_start[at] = start;
    const float bound = table->level[static_cast<size_t>(start) + 1];
    table->few_bound[at] = std::bit_cast<int32_t>(bound) - 1;
  }
}

}  // namespace

void FillLevelTable(std::span<const float> levels, LevelTable* table) {
  table->count = levels.size();
  table->has_zero = levels[0] == 0;
  table->level.fill(std::numeric_limits<float>::infinity());
  table->inverse_width.fill(0);
  if (table->has_zero) {
    std::copy(levels.begin(), levels.end(), table->level.begin());
  } else {
    table->level[0] = -levels[0];
    std::copy(levels.begin(), levels.end() - 1, table->level.begin() + 1);
  }
  table->places_fit = true;
  const std::span<const float> ends = levels.subspan(table->has_zero ? 1 : 0);
  for (size_t j = 0; j < ends.size(); ++j) {
    table->inverse_width[j] = 1.0f / (ends[j] - table->level[j]);
    table->places_fit = table->places_fit && table->inverse_width[j] < 0x1p90f;
  }
  const std::span<const float> begins(table->level.data(), table->count);
  table->start.fill(0);
  table->has_few_bins = false;
  if (begins.size() > 8) {
    ChooseBins(begins, table);
  } else if (begins.size() > 1) {
    ChooseFewBins(begins, table);
  }
}

void FillValueTable(std::span<const float> levels, int bits, ValueTable* table) {
  table->bits = bits;
  table->value.fill(0);
  const size_t sign = size_t{1} << (bits - 1);
  for (size_t j = 0; j < levels.size(); ++j) {
    table->value[j] = levels[j];
    table->value[j + sign] = -levels[j];
  }
}

}  // namespace elastiquant
