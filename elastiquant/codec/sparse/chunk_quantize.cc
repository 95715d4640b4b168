#include "elastiquant/codec/sparse/chunk_quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

constexpr uint32_t kInfiniteScale = 0x7F80;

}  // namespace

float FromChunkScale(uint16_t scale) {
  return std::bit_cast<float>(static_cast<uint32_t>(scale) << 16);
}

Result<uint16_t> ChunkScale(std::span<const float> values) {
  const double mean =
      SumSquares(values.data(), values.size()) / static_cast<double>(values.size());
  const auto root = static_cast<float>(std::sqrt(mean));
  const auto bits = std::bit_cast<uint32_t>(root);
  const uint32_t scale = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  if (scale >= kInfiniteScale) {
    return OutOfRange("values of a root mean square of " + std::to_string(root) +
                      " exceed what few bits can hold; use bits=exact");
  }
  return static_cast<uint16_t>(std::max(scale, 1u));
}

void QuantizeChunk(std::span<const float> values, uint16_t scale, int bits, uint8_t* codes,
                   std::span<LevelSums> sums) {
  const size_t bins = sums.size();
  const float size = FromChunkScale(scale), last = static_cast<float>(bins) - 1;
  const float factor = static_cast<float>(4 * bins) / static_cast<float>(4 + 3 * bits);
  const auto weight = static_cast<double>(size);
  for (size_t i = 0; i < values.size(); ++i) {
    const float magnitude = std::fabs(values[i]);
    const auto bin = static_cast<int>(std::min(magnitude / size * factor, last));
    LevelSums& sum = sums[static_cast<size_t>(bin)];
    codes[i] =
        static_cast<uint8_t>(static_cast<size_t>(bin) + (std::signbit(values[i]) ? bins : 0));
    sum.products += weight * static_cast<double>(magnitude);
    sum.squares += weight * weight;
  }
}

float LevelOf(const LevelSums& sums) {
  return sums.squares > 0 ? static_cast<float>(sums.products / sums.squares) : 0.0f;
}

double ChunkValueError(size_t kept) {
  // With one level the error would be that of projecting the magnitudes onto the vector of
  // scales s, and more bins take no more from it. If a chunk's mean square is s^2, its sum of
  // magnitudes is at least s sqrt(kept), so that the projection holds 1 / kept of the squares.
  // The roundings of scales (2^-8) and levels take a little of it.
  return 1 - (1 - 0x1p-5) / static_cast<double>(std::max<size_t>(kept, 1));
}

}  // namespace elastiquant
