// One step of rANS encoding for a vector of states in 32-bit lanes. This file is included once
// for each SIMD target.
#if defined(ELASTIQUANT_KERNELS_RANS_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELASTIQUANT_KERNELS_RANS_ENCODE_INL_H_
#undef ELASTIQUANT_KERNELS_RANS_ENCODE_INL_H_
#else
#define ELASTIQUANT_KERNELS_RANS_ENCODE_INL_H_
#endif

#include <hwy/highway.h>

#include "elastiquant/kernels/rans/rans_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
using D32 = hn::CappedTag<uint32_t, 16>;
using V32 = hn::Vec<D32>;
using DI32 = hn::RebindToSigned<D32>;
using DF = hn::RebindToFloat<D32>;
constexpr size_t kEncoderLanes = hn::MaxLanes(D32());

// Returns unsigned integers, rounded to floats.
HWY_INLINE hn::Vec<DF> FloatOf(V32 x) {
#if HWY_TARGET <= HWY_AVX3
  return hn::Vec<DF>{_mm512_cvtepu32_ps(x.raw)};
#else
  // Both halves and the product are exact, so the result is rounded once, as by the instruction
  // above.
  const DI32 di;
  const DF df;
  const auto high = hn::ConvertTo(df, hn::BitCast(di, hn::ShiftRight<16>(x)));
  const auto low = hn::ConvertTo(df, hn::BitCast(di, hn::And(x, hn::Set(D32(), 0xFFFF))));
  return hn::Add(hn::Mul(high, hn::Set(df, 65536.0f)), low);
#endif
}

// Returns the integers at or below floats, which are at least 0 and in range.
HWY_INLINE V32 Truncate(hn::Vec<DF> v) {
#if HWY_TARGET <= HWY_AVX3
  return V32{_mm512_cvttps_epi32(v.raw)};  // in range: ConvertTo would check
#else
  return hn::BitCast(D32(), hn::ConvertTo(DI32(), v));
#endif
}

// Emits words, that of the first lane first, and returns the new states. frequency_start holds
// f | start << 16. The reciprocals are (1 - 2^-22) / f, with a relative error of at most 2^-23.
HWY_INLINE V32 StepEncoder(V32 x, V32 frequency_start, hn::Vec<DF> reciprocal, uint8_t** next) {
  const D32 d;
  const DI32 di;
  const V32 f = hn::And(frequency_start, hn::Set(d, 0xFFFF));
  const V32 start = hn::ShiftRight<16>(frequency_start);

  const auto small =
      hn::RebindMask(d, hn::Gt(hn::BitCast(di, f), hn::BitCast(di, hn::ShiftRight<20>(x))));
  const auto full = hn::Not(small);
  const hn::Rebind<uint16_t, D32> d16;
  const hn::Repartition<uint8_t, decltype(d16)> d8;
  hn::StoreU(hn::BitCast(d8, hn::TruncateTo(d16, hn::Compress(x, full))), d8, *next);
  *next += 2 * hn::CountTrue(d, full);
  x = hn::IfThenElse(small, x, hn::ShiftRight<16>(x));

  // x < f * 2^20, so the quotient q < 2^20. The float product is wrong by less than 7 * 2^-24
  // of itself (by two roundings and that of the reciprocal, which is made 2^-22 too small, so
  // that the product is never above x / f). Truncation therefore gives q or q - 1.
  const V32 q = Truncate(hn::Mul(FloatOf(x), reciprocal));
  const V32 rest = hn::Sub(x, hn::Mul(q, f));
  const V32 rest_to_scale = hn::Sub(hn::Set(d, kRansScale), f);
  const V32 y = hn::Add(hn::Add(x, start), hn::Mul(q, rest_to_scale));
  const auto exact = hn::RebindMask(d, hn::Gt(hn::BitCast(di, f), hn::BitCast(di, rest)));
  return hn::IfThenElse(exact, y, hn::Add(y, rest_to_scale));
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#endif  // once for each target
