#include "elastiquant/kernels/whiten.h"

#include <algorithm>
#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/whiten.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "elastiquant/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Half the bits of a float and these are those of its root, or nearly: halving the exponent
// takes the root of a power of two, and the mantissa runs in a straight line from one to the
// next.
constexpr uint32_t kRoot = 0x1FBB5000;

HWY_INLINE float RootNear(float x) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) >> 1) + kRoot);
}

#if HWY_TARGET != HWY_SCALAR
HWY_INLINE VF RootNear(VF x) {
  const VU half = hn::ShiftRight<1>(hn::BitCast(DU(), x));
  return hn::BitCast(DF(), hn::Add(half, hn::Set(DU(), kRoot)));
}
#endif

uint32_t WhitenOf(const float* v, size_t n, float floor, const float* g, float* out) {
  size_t i = 0;
  uint32_t bits = 0;
#if HWY_TARGET != HWY_SCALAR
  const size_t lanes = hn::Lanes(DF());
  const VF zero = hn::Zero(DF()), least = hn::Set(DF(), floor);
  VU sum = hn::Zero(DU());
  for (; i + lanes <= n; i += lanes) {
    const VF moment = hn::LoadU(DF(), v + i);
    sum = hn::Add(sum, hn::BitCast(DU(), moment));
    const VF unit = RootNear(hn::Add(hn::Max(moment, zero), least));
    hn::StoreU(hn::Div(hn::LoadU(DF(), g + i), unit), DF(), out + i);
  }
  bits = hn::GetLane(hn::SumOfLanes(DU(), sum));
#endif
  for (; i < n; ++i) {
    bits += std::bit_cast<uint32_t>(v[i]);
    out[i] = g[i] / RootNear(std::max(v[i], 0.0f) + floor);
  }
  return bits;
}

void UnwhitenOf(const float* v, size_t n, float floor, const float* g, float* out) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const size_t lanes = hn::Lanes(DF());
  const VF zero = hn::Zero(DF()), least = hn::Set(DF(), floor);
  for (; i + lanes <= n; i += lanes) {
    const VF unit = RootNear(hn::Add(hn::Max(hn::LoadU(DF(), v + i), zero), least));
    hn::StoreU(hn::Mul(hn::LoadU(DF(), g + i), unit), DF(), out + i);
  }
#endif
  for (; i < n; ++i) out[i] = g[i] * RootNear(std::max(v[i], 0.0f) + floor);
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(WhitenOf);
HWY_EXPORT(UnwhitenOf);

uint32_t Whiten(const float* v, size_t n, float floor, const float* g, float* out) {
  return HWY_DYNAMIC_DISPATCH(WhitenOf)(v, n, floor, g, out);
}
void Unwhiten(const float* v, size_t n, float floor, const float* g, float* out) {
  HWY_DYNAMIC_DISPATCH(UnwhitenOf)(v, n, floor, g, out);
}

}  // namespace elastiquant
#endif  // HWY_ONCE
