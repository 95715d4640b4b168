#include "elastiquant/kernels/rotation/flip_signs.h"

#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/rotation/flip_signs.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "elastiquant/kernels/lanes-inl.h"
#include "elastiquant/kernels/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void Flip(const float* in, size_t n, RandomRun run, float scale, float* out) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  RandomVectors<DU> random(DU(), run);
  const size_t lanes = hn::Lanes(DF());
  const VF factor = hn::Set(DF(), scale);
  const VU top = hn::Set(DU(), 0x80000000u);
  for (; i + lanes <= n; i += lanes) {
    const VF scaled = hn::Mul(hn::LoadU(DF(), in + i), factor);
    const VU flip = hn::And(random.Next(), top);
    hn::StoreU(hn::Xor(scaled, hn::BitCast(DF(), flip)), DF(), out + i);
  }
#endif
  for (; i < n; ++i) {
    const uint32_t bits = RandomBits(run.keys, run.first + static_cast<uint32_t>(i));
    const auto scaled = std::bit_cast<uint32_t>(in[i] * scale);
    out[i] = std::bit_cast<float>(scaled ^ (bits & 0x80000000u));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(Flip);

void FlipSigns(const float* in, size_t n, RandomRun run, float scale, float* out) {
  HWY_DYNAMIC_DISPATCH(Flip)(in, n, run, scale, out);
}

}  // namespace elastiquant
#endif  // HWY_ONCE
