#include <algorithm>
#include <bit>
#include <cmath>

#include "elastiquant/codec/rotation/eden.h"
#include "elastiquant/kernels/pack.h"

namespace elastiquant {
namespace {

// Lloyd and Max's centroids of N(0, 1), by bits.
constexpr std::array<float, 15> kCentroids{0.797885f,                                   //
                                           0.452780f, 1.510418f,                        //
                                           0.245094f, 0.756005f, 1.343909f, 2.151946f,  //
                                           0.128395f, 0.388048f, 0.656759f, 0.942340f,
                                           1.256231f, 1.618046f, 2.069017f, 2.732589f};

// Halfway between neighbouring centroids, in units of a block's standard deviation.
struct Bounds {
  Bounds(int bits, float deviation) : count(static_cast<int>(EdenCentroids(bits).size()) - 1) {
    const std::span<const float> centroids = EdenCentroids(bits);
    for (int k = 0; k < count; ++k) {
      bound[k] = deviation * (0.5f * (centroids[k] + centroids[k + 1]));
    }
  }
  int count;
  float bound[7] = {};
};

// Codes: a magnitude's index, and above it the sign. Adds <c, y> in eight columns.
void QuantizePart(std::span<const float> part, int bits, float deviation, uint8_t* codes,
                  double* columns) {
  const Bounds bounds(bits, deviation);
  const std::span<const float> centroids = EdenCentroids(bits);
  for (size_t i = 0; i < part.size(); ++i) {
    const float size = std::abs(part[i]);
    int index = 0;
    for (int k = 0; k < bounds.count; ++k) index += size > bounds.bound[k] ? 1 : 0;
    const uint32_t sign = std::bit_cast<uint32_t>(part[i]) >> 31;
    codes[i] = static_cast<uint8_t>(static_cast<uint32_t>(index) | sign << (bits - 1));
    columns[i % 8] += static_cast<double>(centroids[static_cast<size_t>(index)]) * size;
  }
}

}  // namespace

std::span<const float> EdenCentroids(int bits) {
  const size_t count = size_t{1} << (bits - 1);
  return {kCentroids.data() + count - 1, count};
}

size_t EdenSplit::bytes() const {
  return sizeof(float) + (upper > 0 ? PackedBytes(upper, lower_bits + 1) : 0) +
         (lower > 0 && lower_bits > 0 ? PackedBytes(lower, lower_bits) : 0);
}

EdenSplit SplitEdenBlock(int rate, size_t size) {
  const size_t upper = static_cast<size_t>(rate % 256) * (size / 256) / 8 * 8;
  return {upper, size - upper, rate / 256};
}

float QuantizeEden(std::span<const float> block, double squares, const EdenSplit& split,
                   uint8_t* codes) {
  const auto deviation =
      static_cast<float>(std::sqrt(squares / static_cast<double>(block.size())));
  double columns[8] = {};
  if (split.upper > 0) {
    QuantizePart(block.first(split.upper), split.lower_bits + 1, deviation, codes, columns);
  }
  if (split.lower_bits > 0) {
    QuantizePart(block.subspan(split.upper), split.lower_bits, deviation, codes + split.upper,
                 columns);
  }
  for (size_t half = 4; half > 0; half /= 2) {
    for (size_t c = 0; c < half; ++c) columns[c] += columns[c + half];
  }
  // Below one bit a coordinate, what was taken may by chance be next to nothing.
  constexpr double kMost = 0x1p100;
  return columns[0] * kMost > squares ? static_cast<float>(squares / columns[0]) : 0;
}

void DequantizeEden(const uint8_t* codes, float scale, const EdenSplit& split,
                    std::span<float> block) {
  const auto part = [&](size_t begin, size_t count, int bits) {
    float table[16];
    const std::span<const float> centroids = EdenCentroids(bits);
    for (size_t c = 0; c < centroids.size(); ++c) {
      table[c] = scale * centroids[c];
      table[c + centroids.size()] = -table[c];
    }
    for (size_t i = begin; i < begin + count; ++i) block[i] = table[codes[i]];
  };
  if (split.upper > 0) part(0, split.upper, split.lower_bits + 1);
  if (split.lower_bits > 0) {
    part(split.upper, split.lower, split.lower_bits);
  } else {
    std::fill_n(block.data() + split.upper, split.lower, 0.0f);
  }
}

}  // namespace elastiquant
