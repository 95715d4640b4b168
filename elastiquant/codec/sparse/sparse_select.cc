#include "elastiquant/codec/sparse/sparse_select.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>

#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/sparse/select.h"

namespace elastiquant {
namespace {

// Coordinates that one thread takes at a time: they stay in its cache while it gathers.
constexpr size_t kSelectTile = size_t{1} << 15;
size_t Tiles(size_t n) { return (n + kSelectTile - 1) / kSelectTile; }

uint32_t MagnitudeBits(float v) { return std::bit_cast<uint32_t>(v) & 0x7FFFFFFFu; }

Status NonFiniteAt(float value, size_t coordinate) {
  return NonFinite("the value is " + std::to_string(value) + " at coordinate " +
                   std::to_string(coordinate));
}

// What the tiles of a message keep, first each in a place of its own as large as the tile, then
// without the holes between them. Pages that nothing is kept in are never touched.
class Collector {
 public:
  Collector(size_t n, Workspace& work) : n_(n), work_(work) {
    const std::span<uint8_t> first =
        work.SharedScratch(Workspace::kCodecSlot, n * sizeof(uint32_t));
    positions_ = reinterpret_cast<uint32_t*>(first.data());
    const std::span<uint8_t> second = work.SharedScratch(
        Workspace::kCodecSlot + 1, n * sizeof(float) + Tiles(n) * sizeof(uint32_t));
    values_ = reinterpret_cast<float*>(second.data());
    counts_ = reinterpret_cast<uint32_t*>(second.data() + n * sizeof(float));
  }

  // collect(first, count, positions) writes those kept of a tile and returns how many they are.
  template <typename Collect>
  SparseSelection Run(const float* values, const Collect& collect) {
    const auto tile = [&](size_t t, int) {
      const size_t first = t * kSelectTile, count = std::min(kSelectTile, n_ - first);
      uint32_t* positions = positions_ + first;
      const size_t kept = collect(first, count, positions);
      counts_[t] = static_cast<uint32_t>(kept);
      if (values == nullptr) return;
      for (size_t i = 0; i < kept; ++i) values_[first + i] = values[positions[i]];
    };
    work_.ParallelFor(Tiles(n_), std::cref(tile));
    size_t size = 0;
    for (size_t t = 0; t < Tiles(n_); ++t) {
      Move(positions_, t * kSelectTile, size, counts_[t]);
      if (values != nullptr) Move(values_, t * kSelectTile, size, counts_[t]);
      size += counts_[t];
    }
    return {{positions_, size}, {values_, size}};
  }

  SparseSelection AtLeast(std::span<const float> values, uint32_t least) {
    return Run(values.data(), [&](size_t first, size_t count, uint32_t* positions) {
      return CollectMagnitudes(values.data() + first, count, least,
                               static_cast<uint32_t>(first), positions);
    });
  }

 private:
  template <typename T>
  static void Move(T* data, size_t from, size_t to, size_t count) {
    if (from != to && count != 0) std::memmove(data + to, data + from, count * sizeof(T));
  }

  size_t n_;
  Workspace& work_;
  uint32_t* positions_;
  float* values_;
  uint32_t* counts_;
};

// Of a selection by magnitude: whatever is not finite is larger than anything else.
Status CheckKept(const SparseSelection& kept) {
  if (AbsMaxBits(kept.values.data(), kept.values.size()) < kNonFiniteBits) return Status::Ok();
  size_t i = 0;
  while (std::isfinite(kept.values[i])) ++i;
  return NonFiniteAt(kept.values[i], kept.positions[i]);
}

// The largest number that at least k of key(0), ..., key(size - 1) reach, and how many exceed
// it. Counts by the leading bits, then by those below, so that equal keys cost no more.
struct Rank {
  uint32_t key;
  size_t above;
};
template <typename Key>
Rank RankOf(size_t size, size_t k, const Key& key) {
  constexpr int kWidths[] = {11, 11, 10};
  uint64_t found = 0;
  size_t above = 0;
  int shift = 32;
  for (const int width : kWidths) {
    const uint64_t known = found >> shift;
    shift -= width;
    std::array<uint32_t, size_t{1} << 11> counts{};
    for (size_t i = 0; i < size; ++i) {
      const uint64_t bits = key(i);
      counts[bits >> shift & ((1u << width) - 1)] += bits >> (shift + width) == known ? 1 : 0;
    }
    uint32_t digit = (1u << width) - 1;
    while (above + counts[digit] < k) above += counts[digit--];
    found |= uint64_t{digit} << shift;
  }
  return {static_cast<uint32_t>(found), above};
}

// Keeps the k largest of a selection that has at least as many.
void KeepLargest(size_t k, SparseSelection* kept) {
  const size_t all = kept->values.size();
  const float* values = kept->values.data();
  const Rank rank = RankOf(all, k, [&](size_t i) { return MagnitudeBits(values[i]); });
  size_t ties = k - rank.above, size = 0;
  for (size_t i = 0; i < all; ++i) {
    const float v = values[i];
    const uint32_t bits = MagnitudeBits(v);
    const bool tie = bits == rank.key && ties > 0;
    kept->positions[size] = kept->positions[i];
    kept->values[size] = v;
    size += bits > rank.key || tie ? 1 : 0;
    ties -= tie ? 1 : 0;
  }
  *kept = {kept->positions.first(size), kept->values.first(size)};
}

constexpr size_t kMaxSample = 16384;

// The rank-th largest of `count` magnitudes at places that depend on nothing; at least the
// least denormal.
uint32_t SampleThreshold(std::span<const float> values, size_t count, size_t rank) {
  std::array<uint32_t, kMaxSample> sample;
  for (size_t j = 0; j < count; ++j) {
    const uint64_t random = RandomBits({0x5A3D1E, 0x10C5}, static_cast<uint32_t>(j));
    sample[j] = MagnitudeBits(values[random * values.size() >> 32]);
  }
  if (rank >= count) return 1;
  std::nth_element(sample.begin(), sample.begin() + static_cast<ptrdiff_t>(rank),
                   sample.begin() + static_cast<ptrdiff_t>(count), std::greater<>());
  return std::max(1u, sample[rank]);
}

}  // namespace

Result<SparseSelection> SelectTop(std::span<const float> values, size_t k, Workspace& work) {
  const size_t n = values.size();
  Collector collector(n, work);
  SparseSelection kept;
  const size_t count = std::min(kMaxSample, std::max<size_t>(n / 128, 1024));
  // Five standard deviations more than k, then far more, then all that is not zero: one
  // attempt is enough unless the sample was unlucky.
  for (const double safety : {5.0, 50.0, 0.0}) {
    const double mean = static_cast<double>(count) * static_cast<double>(k) /
                        static_cast<double>(std::max<size_t>(n, 1));
    const auto rank = static_cast<size_t>(mean + safety * (std::sqrt(mean) + 1));
    const bool small = n <= 4 * count;
    const uint32_t least = small || safety == 0 ? 1 : SampleThreshold(values, count, rank);
    kept = collector.AtLeast(values, least);
    EQ_RETURN_IF_ERROR(CheckKept(kept));
    if (kept.values.size() >= k || least == 1) break;
  }
  if (kept.values.size() > k) KeepLargest(k, &kept);
  return kept;
}

Result<SparseSelection> SelectSampled(std::span<const float> values, size_t k, size_t least,
                                      size_t most, Workspace& work) {
  const size_t n = values.size();
  const size_t count = std::min({kMaxSample, n, std::max(n / 100, 2 * n / k)});
  const size_t rank = count * k / n;
  uint32_t threshold = SampleThreshold(values, count, rank > 0 ? rank - 1 : 0);
  Collector collector(n, work);
  constexpr int kAttempts = 4;
  for (int attempt = 0; attempt < kAttempts && threshold > 1; ++attempt) {
    SparseSelection kept = collector.AtLeast(values, threshold);
    EQ_RETURN_IF_ERROR(CheckKept(kept));
    if (kept.values.size() > most) KeepLargest(k, &kept);
    if (kept.values.size() >= least) return kept;
    threshold = MagnitudeBits(0.8f * std::bit_cast<float>(threshold));
  }
  return SelectTop(values, k, work);
}

Result<SparseSelection> SelectAtLeast(std::span<const float> values, float threshold,
                                      Workspace& work) {
  Collector collector(values.size(), work);
  const SparseSelection kept = collector.AtLeast(values, MagnitudeBits(threshold));
  EQ_RETURN_IF_ERROR(CheckKept(kept));
  return kept;
}

Result<SparseSelection> SelectLikely(std::span<const float> values, float magnitude,
                                     LaneKeys keys, Workspace& work) {
  Collector collector(values.size(), work);
  const SparseSelection kept =
      collector.Run(values.data(), [&](size_t first, size_t count, uint32_t* positions) {
        return CollectLikely(values.data() + first, count, magnitude, keys,
                             static_cast<uint32_t>(first), positions);
      });
  EQ_RETURN_IF_ERROR(CheckKept(kept));
  return kept;
}

std::span<uint32_t> SelectDrawn(LaneKeys keys, size_t n, size_t k, Workspace& work) {
  Collector collector(n, work);
  if (k == n) {
    return collector
        .Run(nullptr,
             [](size_t first, size_t count, uint32_t* positions) {
               std::iota(positions, positions + count, static_cast<uint32_t>(first));
               return count;
             })
        .positions;
  }
  SparseSelection drawn;
  // As for SelectTop, with the expected number known. The numbers being all different, the
  // last limit leaves out one coordinate at most, which is the last to be wanted.
  for (const double safety : {5.0, 50.0, 1e18}) {
    const double size = static_cast<double>(k);
    const double part = (size + safety * (std::sqrt(size) + 1)) / static_cast<double>(n);
    const auto limit = static_cast<uint32_t>(std::min(part * 0x1p32, 4294967295.0));
    drawn = collector.Run(nullptr, [&](size_t first, size_t count, uint32_t* positions) {
      return CollectDrawn(keys, static_cast<uint32_t>(first), count, limit, positions);
    });
    if (drawn.positions.size() >= k) break;
  }
  const std::span<uint32_t> positions = drawn.positions;
  if (positions.size() == k) return positions;
  const auto key = [&](size_t i) { return ~RandomBits(keys, positions[i]); };
  const Rank rank = RankOf(positions.size(), k, key);
  size_t size = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    const bool smallest = key(i) >= rank.key;
    positions[size] = positions[i];
    size += smallest ? 1 : 0;
  }
  return positions.first(size);
}

Result<SparseSelection> SelectDrawn(std::span<const float> values, LaneKeys keys, size_t k,
                                    Workspace& work) {
  EQ_RETURN_IF_ERROR(CheckFinite(values, work));
  const std::span<uint32_t> positions = SelectDrawn(keys, values.size(), k, work);
  const std::span<uint8_t> scratch =
      work.SharedScratch(Workspace::kCodecSlot + 1, values.size() * sizeof(float));
  const std::span<float> out(reinterpret_cast<float*>(scratch.data()), k);
  const auto gather = [&](size_t block, int) {
    const size_t end = std::min(k, (block + 1) * kSelectTile);
    for (size_t i = block * kSelectTile; i < end; ++i) out[i] = values[positions[i]];
  };
  work.ParallelFor(Tiles(k), std::cref(gather));
  return SparseSelection{positions, out};
}

Status CheckFinite(std::span<const float> values, Workspace& work) {
  std::atomic<bool> finite{true};
  const auto check = [&](size_t t, int) {
    const size_t first = t * kSelectTile, count = std::min(kSelectTile, values.size() - first);
    if (AbsMaxBits(values.data() + first, count) >= kNonFiniteBits) finite = false;
  };
  work.ParallelFor(Tiles(values.size()), std::cref(check));
  if (finite) return Status::Ok();
  size_t i = 0;
  while (std::isfinite(values[i])) ++i;
  return NonFiniteAt(values[i], i);
}

}  // namespace elastiquant
