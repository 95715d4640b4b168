#include "elastiquant/kernels/sparse/select.h"

#include <algorithm>
#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/sparse/select.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "elastiquant/kernels/random-inl.h"
#include "elastiquant/kernels/scaler.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU = hn::ScalableTag<uint32_t>;
using DI = hn::RebindToSigned<DU>;
constexpr uint32_t kMagnitude = 0x7FFFFFFF;

// Magnitudes fit in 31 bits: a signed comparison serves, which all targets have.
HWY_INLINE hn::Vec<DI> Magnitudes(const float* v) {
  const DI di;
  return hn::And(hn::LoadU(di, reinterpret_cast<const int32_t*>(v)),
                 hn::Set(di, static_cast<int32_t>(kMagnitude)));
}
HWY_INLINE uint32_t MagnitudeOf(float v) { return std::bit_cast<uint32_t>(v) & kMagnitude; }

size_t CountMagnitudesOf(const float* HWY_RESTRICT v, size_t n, uint32_t least) {
  const DI di;
  const size_t lanes = hn::Lanes(di);
  const auto below = hn::Set(di, static_cast<int32_t>(least) - 1);
  size_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes) {
    count += hn::CountTrue(di, hn::Gt(Magnitudes(v + i), below));
  }
  for (; i < n; ++i) count += MagnitudeOf(v[i]) >= least;
  return count;
}

// Few coordinates are kept, as a rule: a vector without any costs one comparison.
template <class D, class M>
HWY_INLINE uint32_t* Append(D d, M kept, uint32_t place, uint32_t* out) {
  if (hn::AllFalse(d, kept)) return out;
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, kept, bytes);
  for (uint32_t bits = bytes[0] | static_cast<uint32_t>(bytes[1]) << 8; bits;
       bits &= bits - 1) {
    *out++ = place + static_cast<uint32_t>(std::countr_zero(bits));
  }
  return out;
}

size_t CollectMagnitudesOf(const float* HWY_RESTRICT v, size_t n, uint32_t least,
                           uint32_t first, uint32_t* HWY_RESTRICT positions) {
  const DI di;
  const size_t lanes = hn::Lanes(di);
  const auto below = hn::Set(di, static_cast<int32_t>(least) - 1);
  uint32_t* out = positions;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    out = Append(di, hn::Gt(Magnitudes(v + i), below), first + static_cast<uint32_t>(i), out);
  }
  for (; i < n; ++i) {
    if (MagnitudeOf(v[i]) >= least) *out++ = first + static_cast<uint32_t>(i);
  }
  return static_cast<size_t>(out - positions);
}

size_t CollectDrawnOf(LaneKeys keys, uint32_t first, size_t n, uint32_t limit,
                      uint32_t* HWY_RESTRICT positions) {
  const DU du;
  const size_t lanes = hn::Lanes(du);
  RandomVectors<DU> random(du, RandomRun{keys, first});
  const auto bound = hn::Set(du, limit);
  uint32_t* out = positions;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    out = Append(du, hn::Lt(random.Next(), bound), first + static_cast<uint32_t>(i), out);
  }
  for (; i < n; ++i) {
    const uint32_t place = first + static_cast<uint32_t>(i);
    if (RandomBits(keys, place) < limit) *out++ = place;
  }
  return static_cast<size_t>(out - positions);
}

// What is certain is told by the bits, so that it does not hang on the rounding of a product.
size_t CollectLikelyOf(const float* HWY_RESTRICT v, size_t n, uint32_t certain, float pre,
                       float scale, RandomRun run, uint32_t* HWY_RESTRICT positions) {
  const DU du;
  const DI di;
  const hn::RebindToFloat<DU> df;
  const size_t lanes = hn::Lanes(du);
  constexpr float kMost = 2147483520.0f;  // the largest float below 2^31
  RandomVectors<DU> random(du, run);
  const auto below = hn::Set(di, static_cast<int32_t>(certain) - 1);
  uint32_t* out = positions;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto m = Magnitudes(v + i);
    const auto scaled =
        hn::Mul(hn::Mul(hn::BitCast(df, m), hn::Set(df, pre)), hn::Set(df, scale));
    const auto chance =
        hn::ConvertTo(di, hn::Min(hn::Add(scaled, hn::Set(df, 0.5f)), hn::Set(df, kMost)));
    const auto drawn = hn::BitCast(di, hn::ShiftRight<1>(random.Next()));
    const auto kept = hn::Or(hn::Gt(m, below), hn::Lt(drawn, chance));
    out = Append(di, kept, run.first + static_cast<uint32_t>(i), out);
  }
  for (; i < n; ++i) {
    const uint32_t place = run.first + static_cast<uint32_t>(i), m = MagnitudeOf(v[i]);
    if (m >= certain) {
      *out++ = place;
      continue;
    }
    const float scaled = std::bit_cast<float>(m) * pre * scale;
    const auto chance = static_cast<uint32_t>(std::min(scaled + 0.5f, kMost));
    if (RandomBits(run.keys, place) >> 1 < chance) *out++ = place;
  }
  return static_cast<size_t>(out - positions);
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(CountMagnitudesOf);
HWY_EXPORT(CollectMagnitudesOf);
HWY_EXPORT(CollectDrawnOf);
HWY_EXPORT(CollectLikelyOf);

size_t CountMagnitudes(const float* v, size_t n, uint32_t least) {
  return HWY_DYNAMIC_DISPATCH(CountMagnitudesOf)(v, n, least);
}
size_t CollectMagnitudes(const float* v, size_t n, uint32_t least, uint32_t first,
                         uint32_t* positions) {
  return HWY_DYNAMIC_DISPATCH(CollectMagnitudesOf)(v, n, least, first, positions);
}
size_t CollectDrawn(LaneKeys keys, uint32_t first, size_t n, uint32_t limit,
                    uint32_t* positions) {
  return HWY_DYNAMIC_DISPATCH(CollectDrawnOf)(keys, first, n, limit, positions);
}

size_t CollectLikely(const float* v, size_t n, float magnitude, LaneKeys keys, uint32_t first,
                     uint32_t* positions) {
  const Scaler scaler = MakeScaler(magnitude, 1);
  return HWY_DYNAMIC_DISPATCH(CollectLikelyOf)(v, n, std::bit_cast<uint32_t>(magnitude),
                                               scaler.pre, scaler.mul * 0x1p31f,
                                               RandomRun{keys, first}, positions);
}

}  // namespace elastiquant
#endif
