#include "elastiquant/kernels/quantize.h"

#include "elastiquant/kernels/quantize_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/quantize.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "elastiquant/kernels/lanes-inl.h"
#include "elastiquant/kernels/random-inl.h"
#include "elastiquant/kernels/rounders-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sets bit bits-1 of each code to the top bit of `signs`, except where the index is 0: only
// then has -index no top bit.
HWY_INLINE VU WithSign(VU index, VU signs, int bits) {
  const DU du;
  const VU sign = hn::And(signs, hn::Sub(hn::Zero(du), index));
  return hn::Or(index,
                hn::And(hn::ShiftRightSame(sign, 32 - bits), hn::Set(du, 1u << (bits - 1))));
}

// From ends of intervals to codes, for levels without zero: end 0 is l_0 with the other sign.
HWY_INLINE VU WithOtherSign(VU end, VU signs, int bits) {
  const DU du;
  const VU one = hn::Set(du, 1);
  const VU flip = hn::ShiftLeft<31>(hn::Sub(one, hn::Min(end, one)));
  const VU sign = hn::ShiftLeftSame(hn::ShiftRight<31>(hn::Xor(signs, flip)), bits - 1);
  return hn::Or(hn::Sub(hn::Max(end, one), one), sign);
}

// The loops work on kGroup vectors at a time, each step for all of them, so that their chains
// of dependent instructions overlap.
constexpr size_t kGroup = 4;

// Puts together indices, one a lane, and the signs in the top bits of `signs`. Without zero
// what is called an index is the end of an interval. kNegated: what is given is -index.
template <bool kHasZero, bool kNegated, size_t U>
HWY_INLINE void StoreCodes(const VU (&index)[U], const VU (&signs)[U], int bits,
                           uint8_t* codes) {
  for (size_t k = 0; k < U; ++k) {
    const VU i = kNegated ? hn::Sub(hn::Zero(DU()), index[k]) : index[k];
    const VU code = kHasZero ? WithSign(i, signs[k], bits) : WithOtherSign(i, signs[k], bits);
    // Not TruncateTo: in Highway 1.0 it is wrong for bytes on AVX3_DL. No code exceeds 255.
    hn::StoreU(hn::DemoteTo(DB(), hn::BitCast(DI(), code)), DB(), codes + k * hn::Lanes(DF()));
  }
}

// Four vectors of both are packed to one of bytes first: saturation keeps signs. Packing works
// in 128-bit blocks; the permutation puts the four vectors' parts in order.
#if HWY_TARGET <= HWY_AVX3
template <bool kHasZero, bool kNegated>
HWY_INLINE void StoreCodes(const VU (&index)[kGroup], const VU (&signs)[kGroup], int bits,
                           uint8_t* codes) {
  static_assert(!kNegated);  // by no rounder of this target
  const __m512i low = _mm512_packus_epi32(index[0].raw, index[1].raw);
  const __m512i high = _mm512_packus_epi32(index[2].raw, index[3].raw);
  const __m512i low_signs = _mm512_packs_epi32(signs[0].raw, signs[1].raw);
  const __m512i high_signs = _mm512_packs_epi32(signs[2].raw, signs[3].raw);
  __m512i packed = _mm512_packus_epi16(low, high);
  const __mmask64 is_signed = _mm512_movepi8_mask(_mm512_packs_epi16(low_signs, high_signs));
  const __mmask64 above_0 = _mm512_test_epi8_mask(packed, packed);
  const __mmask64 negative = kHasZero ? is_signed & above_0 : ~(is_signed ^ above_0);
  if (!kHasZero) packed = _mm512_subs_epu8(packed, _mm512_set1_epi8(1));
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(1 << (bits - 1)));
  const __m512i code = _mm512_mask_add_epi8(packed, negative, packed, sign);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(codes, _mm512_permutexvar_epi32(order, code));
}
#elif HWY_TARGET == HWY_AVX2
template <bool kHasZero, bool kNegated>
HWY_INLINE void StoreCodes(const VU (&index)[kGroup], const VU (&signs)[kGroup], int bits,
                           uint8_t* codes) {
  const __m256i low_signs = _mm256_packs_epi32(signs[0].raw, signs[1].raw);
  const __m256i high_signs = _mm256_packs_epi32(signs[2].raw, signs[3].raw);
  const __m256i zero = _mm256_setzero_si256();
  const __m256i is_signed = _mm256_cmpgt_epi8(zero, _mm256_packs_epi16(low_signs, high_signs));
  __m256i packed;
  if constexpr (kNegated) {
    const __m256i low = _mm256_packs_epi32(index[0].raw, index[1].raw);
    const __m256i high = _mm256_packs_epi32(index[2].raw, index[3].raw);
    packed = _mm256_sub_epi8(zero, _mm256_packs_epi16(low, high));
  } else {
    const __m256i low = _mm256_packus_epi32(index[0].raw, index[1].raw);
    const __m256i high = _mm256_packus_epi32(index[2].raw, index[3].raw);
    packed = _mm256_packus_epi16(low, high);
  }
  const __m256i negative = kHasZero
                               ? _mm256_and_si256(is_signed, _mm256_cmpgt_epi8(packed, zero))
                               : _mm256_xor_si256(is_signed, _mm256_cmpeq_epi8(packed, zero));
  if (!kHasZero) packed = _mm256_subs_epu8(packed, _mm256_set1_epi8(1));
  const __m256i sign = _mm256_set1_epi8(static_cast<char>(1 << (bits - 1)));
  const __m256i code = _mm256_or_si256(packed, _mm256_and_si256(negative, sign));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes),
                      _mm256_permutevar8x32_epi32(code, order));
}
#endif

#if HWY_TARGET != HWY_SCALAR
// Quantises U vectors at v, with a scaler whose pre is 1 and one of the rounders.
template <size_t U, class Rounder>
HWY_INLINE void QuantizeVectors(const float* HWY_RESTRICT v, VF mul, VF top,
                                RandomVectors<DU>& random, const Rounder& rounder,
                                uint8_t* HWY_RESTRICT codes) {
  VF y[U];
  VU signs[U], bits[U], index[U];
  for (size_t k = 0; k < U; ++k) {
    y[k] = hn::LoadU(DF(), v + k * hn::Lanes(DF()));
    signs[k] = hn::BitCast(DU(), y[k]);
    y[k] = hn::Mul(hn::Abs(y[k]), mul);
    if constexpr (Rounder::kClamp) y[k] = hn::Min(y[k], top);
  }
  if constexpr (Rounder::kInverted) {
    random.NextInverted(bits);
  } else {
    random.Next(bits);
  }
  rounder.Vectors(y, bits, index, signs);
  StoreCodes<Rounder::kHasZero, Rounder::kNegated>(index, signs, rounder.bits, codes);
}
#endif

template <class Rounder>
HWY_INLINE void Quantize(const float* HWY_RESTRICT v, size_t n, RandomRun run,
                         const Scaler& scaler, const Rounder& rounder,
                         uint8_t* HWY_RESTRICT codes) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const size_t lanes = hn::Lanes(DF());
  const VF mul = hn::Set(DF(), scaler.mul);
  const VF top = hn::Set(DF(), scaler.top);
  RandomVectors<DU> random(DU(), run);
  // Memory works on the next bucket while this one, which its norm has brought to the cache,
  // is computed on.
  const size_t ahead = n + 512;
  // The scalar loop is enough for norms so far from 1 that they need scaling twice.
  const size_t vector_end = scaler.pre == 1 ? n : 0;
  for (; i + kGroup * lanes <= vector_end; i += kGroup * lanes) {
    for (size_t k = 0; k < kGroup * lanes; k += 16) hwy::Prefetch(v + i + k + ahead);
    QuantizeVectors<kGroup>(v + i, mul, top, random, rounder, codes + i);
  }
  for (; i + lanes <= vector_end; i += lanes) {
    QuantizeVectors<1>(v + i, mul, top, random, rounder, codes + i);
  }
#endif
  for (; i < n; ++i) {
    const uint32_t bits = RandomBits(run.keys, run.first + static_cast<uint32_t>(i));
    codes[i] = rounder.Scalar(ScaledSize(scaler, v[i]), v[i], bits);
  }
}

void QuantizeUniformOf(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                       int bits, uint8_t* codes) {
  Quantize(v, n, random, scaler, UniformRounder{{}, bits}, codes);
}

void QuantizeDitheredOf(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                        int bits, uint8_t* codes) {
  Quantize(v, n, random, scaler, DitheredRounder{{}, bits}, codes);
}

void QuantizeHalvingOf(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                       int bits, uint8_t* codes) {
  Quantize(v, n, random, scaler, HalvingRounder{{}, bits, scalar::MakeHalving(bits)}, codes);
}

template <bool kHasZero>
void QuantizeFewLevels(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                       const LevelTable& table, int bits, uint8_t* codes) {
#if HWY_TARGET <= HWY_AVX3
  if (table.has_few_bins) {
    return Quantize(v, n, random, scaler, BinnedLevelsRounder<kHasZero>{{}, table, bits},
                    codes);
  }
#elif HWY_TARGET == HWY_AVX2
  if (table.places_fit) {
    return Quantize(v, n, random, scaler, ComparedLevelsRounder<kHasZero>(table, bits), codes);
  }
#endif
  Quantize(v, n, random, scaler, FewLevelsRounder<kHasZero>{table, bits}, codes);
}

void QuantizeLevelsOf(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                      const LevelTable& table, int bits, uint8_t* codes) {
  if (table.count > 8) {
    Quantize(v, n, random, scaler, ManyLevelsRounder{{}, table, bits}, codes);
  } else if (table.has_zero) {
    QuantizeFewLevels<true>(v, n, random, scaler, table, bits, codes);
  } else {
    QuantizeFewLevels<false>(v, n, random, scaler, table, bits, codes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(QuantizeUniformOf);
HWY_EXPORT(QuantizeDitheredOf);
HWY_EXPORT(QuantizeHalvingOf);
HWY_EXPORT(QuantizeLevelsOf);

void QuantizeUniform(const float* v, size_t n, RandomRun random, const Scaler& scaler, int bits,
                     uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(QuantizeUniformOf)(v, n, random, scaler, bits, codes);
}

void QuantizeDithered(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                      int bits, uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(QuantizeDitheredOf)(v, n, random, scaler, bits, codes);
}

void QuantizeHalving(const float* v, size_t n, RandomRun random, const Scaler& scaler, int bits,
                     uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(QuantizeHalvingOf)(v, n, random, scaler, bits, codes);
}

void QuantizeLevels(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                    const LevelTable& table, int bits, uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(QuantizeLevelsOf)(v, n, random, scaler, table, bits, codes);
}

}  // namespace elastiquant
#endif
