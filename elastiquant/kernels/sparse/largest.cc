#include "elastiquant/kernels/sparse/largest.h"

#include <algorithm>
#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/sparse/largest.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DI = hn::CappedTag<int32_t, 16>;
using VI = hn::Vec<DI>;
constexpr int32_t kMagnitude = 0x7FFFFFFF;

// Magnitudes fit in 31 bits: a signed comparison serves, which all targets have.
HWY_INLINE VI MagnitudesAt(const float* v) {
  const DI di;
  return hn::And(hn::LoadU(di, reinterpret_cast<const int32_t*>(v)), hn::Set(di, kMagnitude));
}
HWY_INLINE int32_t MagnitudeOf(float v) { return std::bit_cast<int32_t>(v) & kMagnitude; }

// Appends the positions of those of a row that are above `below`; the first stands at `at`.
// Without branches, because a vector with such a value comes as a surprise each time.
HWY_INLINE int32_t* CollectRow(const float* HWY_RESTRICT row, size_t width, int32_t at,
                               int32_t below, int32_t* HWY_RESTRICT out) {
  const DI di;
  const size_t lanes = hn::Lanes(di);
  const VI limit = hn::Set(di, below);
  VI place = hn::Iota(di, at);
  size_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const auto above = hn::Gt(MagnitudesAt(row + i), limit);
    hn::StoreU(hn::Compress(place, above), di, out);
    out += hn::CountTrue(di, above);
    place = hn::Add(place, hn::Set(di, static_cast<int32_t>(lanes)));
  }
  for (; i < width; ++i) {
    *out = at + static_cast<int32_t>(i);
    out += MagnitudeOf(row[i]) > below ? 1 : 0;
  }
  return out;
}

// Candidates: their positions, ascending, and magnitudes, with room for a vector behind them.
struct Candidates {
  int32_t* places;
  int32_t* keys;
  size_t size;
};

// Rows far apart are too many streams for a processor to see them coming: what is to the right
// of them, where the next block of a matrix is, is fetched ahead.
HWY_INLINE void FetchNextBlock(const float* row, size_t width) {
  constexpr size_t kLine = 64;
  const char* const next = reinterpret_cast<const char*>(row);
  for (size_t at = width * sizeof(float); at < 2 * width * sizeof(float); at += kLine) {
    hwy::Prefetch(next + at);
  }
}

HWY_INLINE size_t CollectAbove(const FloatRows& in, int32_t below, int32_t* places) {
  int32_t* out = places;
  for (size_t row = 0; row < in.rows; ++row) {
    if (in.rows > 1) FetchNextBlock(in.v + row * in.stride, in.width);
    out = CollectRow(in.v + row * in.stride, in.width, static_cast<int32_t>(row * in.width),
                     below, out);
  }
  return static_cast<size_t>(out - places);
}

// The keys are followed by a vector of -1.
HWY_INLINE size_t CountAbove(const Candidates& c, int32_t below) {
  const DI di;
  const size_t lanes = hn::Lanes(di);
  const VI limit = hn::Set(di, below);
  VI count = hn::Zero(di);
  for (size_t i = 0; i < c.size; i += lanes) {
    count = hn::Sub(count, hn::VecFromMask(di, hn::Gt(hn::LoadU(di, c.keys + i), limit)));
  }
  return static_cast<size_t>(hn::GetLane(hn::SumOfLanes(di, count)));
}

// The `keep` largest are those above `below`, and the first `ties` of those that are as large
// as that.
struct Cut {
  int32_t below;
  size_t ties;
};

// There are more candidates than `keep`, all above `low`.
HWY_INLINE Cut FindCut(const Candidates& c, size_t keep, int32_t low) {
  const DI di;
  VI most = hn::Zero(di);
  for (size_t i = 0; i < c.size; i += hn::Lanes(di)) {
    most = hn::Max(most, hn::LoadU(di, c.keys + i));
  }
  // More than `keep` are above `low`, and fewer than that above `high`.
  int32_t high = hn::GetLane(hn::MaxOfLanes(di, most));
  size_t above_high = 0;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    const size_t count = CountAbove(c, middle);
    if (count == keep) return {middle, 0};
    if (count > keep) {
      low = middle;
    } else {
      high = middle;
      above_high = count;
    }
  }
  return {high, keep - above_high};
}

// Moves those together without a branch that nobody could foresee.
HWY_INLINE size_t TakeCut(const Candidates& c, Cut cut, uint16_t* HWY_RESTRICT positions) {
  size_t size = 0, ties = 0;
  for (size_t i = 0; i < c.size; ++i) {
    const size_t tie = c.keys[i] == cut.below && ties < cut.ties ? 1 : 0;
    c.places[size] = c.places[i];
    size += (c.keys[i] > cut.below ? 1 : 0) + tie;
    ties += tie;
  }
  for (size_t i = 0; i < size; ++i) positions[i] = static_cast<uint16_t>(c.places[i]);
  return size;
}

size_t SelectLargestOf(const FloatRows& in, size_t keep, uint32_t* guess, uint32_t* scratch,
                       uint16_t* HWY_RESTRICT positions) {
  constexpr int32_t kBit = 1 << 23;  // a factor of two
  Candidates c{reinterpret_cast<int32_t*>(scratch),
               reinterpret_cast<int32_t*>(scratch) + LargestScratch(in.size()) / 2, 0};
  int32_t below = std::max(static_cast<int32_t>(*guess) - 1, 0);
  c.size = CollectAbove(in, below, c.places);
  // If the guess was too high, a little lower, then far lower, then down to zero.
  for (const int32_t step : {kBit / 2, 4 * kBit, kMagnitude}) {
    if (c.size >= keep || below == 0) break;
    below = std::max(below - step, 0);
    c.size = CollectAbove(in, below, c.places);
  }
  for (size_t i = 0; i < c.size; ++i) {
    c.keys[i] = MagnitudeOf(in.At(static_cast<size_t>(c.places[i])));
  }
  const DI di;
  hn::StoreU(hn::Set(di, -1), di, c.keys + c.size);
  Cut cut{below, 0};
  if (c.size > keep) cut = FindCut(c, keep, below);
  // A sixteenth to an eighth below lets half as many again pass, as a rule.
  *guess = static_cast<uint32_t>(std::max(cut.below - kBit / 8, 1));
  return TakeCut(c, cut, positions);
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(SelectLargestOf);

size_t SelectLargest(const FloatRows& in, size_t keep, uint32_t* guess, uint32_t* scratch,
                     uint16_t* positions) {
  return HWY_DYNAMIC_DISPATCH(SelectLargestOf)(in, keep, guess, scratch, positions);
}

}  // namespace elastiquant
#endif
