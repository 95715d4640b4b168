// Square roots, quotients and products are rounded once, as IEEE 754 has them, on every target.
#include "elastiquant/kernels/whiten.h"

#include <algorithm>
#include <cmath>

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

struct Divide {
  float operator()(float g, float unit) const { return g / unit; }
  VF Vector(VF g, VF unit) const { return hn::Div(g, unit); }
};
struct Multiply {
  float operator()(float g, float unit) const { return g * unit; }
  VF Vector(VF g, VF unit) const { return hn::Mul(g, unit); }
};

template <class Op>
HWY_INLINE void Convert(const float* HWY_RESTRICT v, size_t n, float floor,
                        float* HWY_RESTRICT g, Op op) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const size_t lanes = hn::Lanes(DF());
  const VF zero = hn::Zero(DF()), least = hn::Set(DF(), floor);
  for (; i + lanes <= n; i += lanes) {
    const VF square = hn::Add(hn::Max(hn::LoadU(DF(), v + i), zero), least);
    hn::StoreU(op.Vector(hn::LoadU(DF(), g + i), hn::Sqrt(square)), DF(), g + i);
  }
#endif
  for (; i < n; ++i) g[i] = op(g[i], std::sqrt(std::max(v[i], 0.0f) + floor));
}

void WhitenOf(const float* v, size_t n, float floor, float* g) {
  Convert(v, n, floor, g, Divide());
}
void UnwhitenOf(const float* v, size_t n, float floor, float* g) {
  Convert(v, n, floor, g, Multiply());
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(WhitenOf);
HWY_EXPORT(UnwhitenOf);

void Whiten(const float* v, size_t n, float floor, float* g) {
  HWY_DYNAMIC_DISPATCH(WhitenOf)(v, n, floor, g);
}
void Unwhiten(const float* v, size_t n, float floor, float* g) {
  HWY_DYNAMIC_DISPATCH(UnwhitenOf)(v, n, floor, g);
}

}  // namespace elastiquant
#endif  // HWY_ONCE
