#include "elastiquant/kernels/quantize.h"

#include "elastiquant/kernels/quantize_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/quantize.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "elastiquant/kernels/lanes-inl.h"
#include "elastiquant/kernels/lookup-inl.h"
#include "elastiquant/kernels/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y in [0, 2^31), so that nothing need be done about overflow.
HWY_INLINE VI Truncate(VF y) {
#if HWY_TARGET <= HWY_AVX3
  return VI{_mm512_cvttps_epi32(y.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VI{_mm256_cvttps_epi32(y.raw)};
#else
  return hn::ConvertTo(DI(), y);
#endif
}

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
// Quantises U vectors at v, with a scaler whose pre is 1. A Rounder turns scaled sizes y, the
// bits of the floats and random bits into indices and signs. `Scalar` does so for one
// coordinate, and `Vectors` for several vectors of them. If kInverted is set, `Vectors` is
// given the complements of the random bits; `Scalar` is always given the bits as they are. If
// kNegated is set, `Vectors` gives minus the indices.
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

// What most rounders have in common: they take the complements of the random bits, which cost
// nothing more where there is an xor of three, and give indices as they are.
struct UsualRounder {
  static constexpr bool kInverted = true, kNegated = false;
};

struct UniformRounder : UsualRounder {
  static constexpr bool kClamp = true, kHasZero = true;
  int bits;

  uint8_t Scalar(float y, float v, uint32_t random) const {
    return scalar::SignedCode(v, scalar::RoundUniform(y, random, bits), bits);
  }
  template <size_t U>
  HWY_INLINE void Vectors(const VF (&y)[U], const VU (&not_random)[U], VU (&index)[U],
                          VU (&)[U]) const {
    for (size_t k = 0; k < U; ++k) {
      const VU place = hn::BitCast(DU(), Truncate(y[k]));
      const VU carry = hn::ShiftRightSame(not_random[k], bits);
      index[k] = hn::ShiftRightSame(hn::Add(place, carry), UniformDigits(bits));
    }
  }
};

struct DitheredRounder : UsualRounder {
  static constexpr bool kClamp = true, kHasZero = true;
  int bits;

  uint8_t Scalar(float y, float v, uint32_t random) const {
    const int32_t k = scalar::RoundDithered(y, std::bit_cast<int32_t>(v) < 0, random, bits);
    return static_cast<uint8_t>(k < 0 ? -k | 1 << (bits - 1) : k);
  }
  template <size_t U>
  HWY_INLINE void Vectors(const VF (&y)[U], const VU (&not_random)[U], VU (&index)[U],
                          VU (&signs)[U]) const {
    const DI di;
    // random >> bits = last - (~random >> bits).
    const VI last = hn::Set(di, (1 << UniformDigits(bits)) - 1);
    for (size_t k = 0; k < U; ++k) {
      const VI negative = hn::BroadcastSignBit(hn::BitCast(di, signs[k]));
      const VI place = hn::Sub(hn::Xor(Truncate(y[k]), negative), negative);
      const VI back = hn::BitCast(di, hn::ShiftRightSame(not_random[k], bits));
      const VI sum = hn::Sub(hn::Add(place, last), back);
      signs[k] = hn::BitCast(DU(), hn::ShiftRightSame(sum, UniformDigits(bits)));
    }
    for (size_t k = 0; k < U; ++k) {
      index[k] = hn::BitCast(DU(), hn::Abs(hn::BitCast(di, signs[k])));
    }
  }
};

struct HalvingRounder : UsualRounder {
  static constexpr bool kClamp = true, kHasZero = true;
  int bits;
  scalar::Halving halving;

  uint8_t Scalar(float r, float v, uint32_t random) const {
    return scalar::SignedCode(v, scalar::RoundHalving(halving, r, random), bits);
  }
  // The larger of both places is right: they meet at the lowest level, below which the float's
  // own falls faster, and above which the other stays.
  template <size_t U>
  HWY_INLINE void Vectors(const VF (&r)[U], const VU (&not_random)[U], VU (&index)[U],
                          VU (&)[U]) const {
    const DF df;
    const DI di;
    const VF lowest = hn::Set(df, halving.lowest);
    for (size_t k = 0; k < U; ++k) {
      const VF low = hn::Mul(hn::Min(r[k], lowest), hn::Set(df, halving.to_place));
      const VI above = hn::Sub(hn::BitCast(di, r[k]), hn::Set(di, halving.bias));
      index[k] = hn::BitCast(DU(), hn::Max(Truncate(low), above));
    }
    for (size_t k = 0; k < U; ++k) {
      const VU carry = hn::ShiftRight<9>(not_random[k]);
      index[k] = hn::ShiftRight<23>(hn::Add(index[k], carry));
    }
  }
};

#if HWY_TARGET != HWY_SCALAR
// From level j to j+1 iff the random fraction is below the place between them.
template <size_t U, class Level, class InverseWidth>
HWY_INLINE void RoundUp(const VF (&r)[U], const VU (&not_random)[U], const Level& level,
                        const InverseWidth& inverse_width, VU (&j)[U]) {
  VU place[U];
  for (size_t k = 0; k < U; ++k) {
    const VF fraction = hn::Mul(hn::Sub(r[k], level(j[k])), inverse_width(j[k]));
    const VF scaled = hn::Mul(fraction, hn::Set(DF(), scalar::kPlaceTop));
    place[k] = hn::BitCast(DU(), Truncate(scaled));
  }
  for (size_t k = 0; k < U; ++k) {
    const VU carry = hn::ShiftRight<2>(not_random[k]);
    j[k] = hn::Add(j[k], hn::ShiftRight<30>(hn::Add(place[k], carry)));
  }
}
#endif

// At most 8 levels, all in registers: a binary search by permutations. Positive floats compare
// as integers do, and the sign of a difference is one digit of the index.
template <bool kWithZero>
struct FewLevelsRounder : UsualRounder {
  static constexpr bool kHasZero = kWithZero;
  static constexpr bool kClamp = !kHasZero;  // else above the last level every place is 0

  FewLevelsRounder(const LevelTable& levels, int code_bits) : table(levels), bits(code_bits) {
#if HWY_TARGET != HWY_SCALAR
    // With 1 taken off, so that equality counts as above.
    const DU du;
    const DF df;
    const VU one = hn::Set(du, 1);
    const auto less_one = [&](VF x) HWY_ATTR {
      return hn::BitCast(df, hn::Sub(hn::BitCast(du, x), one));
    };
    HWY_ALIGN float seconds[16] = {table.level[2], table.level[6]};
    HWY_ALIGN float thirds[16] = {table.level[1], table.level[3], table.level[5],
                                  table.level[7]};
    first = hn::BitCast(du, less_one(hn::Set(df, table.level[4])));
    second = Table8<DF>(seconds).Map(less_one);
    third = Table8<DF>(thirds).Map(less_one);
#endif
  }

  const LevelTable& table;
  int bits;

  uint8_t Scalar(float r, float v, uint32_t random) const {
    return scalar::LevelCode(table, r, v, random, bits);
  }
#if HWY_TARGET != HWY_SCALAR
  VU first;
  Table8<DF> level{table.level.data()};
  Table8<DF> inverse_width{table.inverse_width.data()};
  Table8<DF> second{table.level.data()};
  Table8<DF> third{table.level.data()};

  template <size_t U>
  HWY_INLINE void Vectors(const VF (&r)[U], const VU (&not_random)[U], VU (&index)[U],
                          VU (&)[U]) const {
    const DU du;
    // 2 j + 1 if r is above the bound, else 2 j.
    const auto next = [&](VU j, VU bound, VF x) HWY_ATTR {
      const VU above = hn::ShiftRight<31>(hn::Sub(bound, hn::BitCast(du, x)));
      return hn::Add(hn::Add(j, j), above);
    };
    for (size_t k = 0; k < U; ++k) {
      index[k] = hn::ShiftRight<31>(hn::Sub(first, hn::BitCast(du, r[k])));
    }
    for (size_t k = 0; k < U; ++k) {
      index[k] = next(index[k], hn::BitCast(du, second(index[k])), r[k]);
    }
    for (size_t k = 0; k < U; ++k) {
      index[k] = next(index[k], hn::BitCast(du, third(index[k])), r[k]);
    }
    RoundUp(r, not_random, level, inverse_width, index);
  }
#endif
};

#if HWY_TARGET <= HWY_AVX3
// At most 8 levels with 16 bins, a vector's lanes: no search, one comparison.
template <bool kWithZero>
struct BinnedLevelsRounder : UsualRounder {
  static constexpr bool kHasZero = kWithZero, kClamp = !kHasZero;  // as above
  const LevelTable& table;
  int bits;
  Table8<DF> level{table.level.data()};
  // To a place in one step: so few bins leave gaps of 2^-40 and more, so nothing overflows.
  Table8<DF> to_place = Table8<DF>(table.inverse_width.data()).Map([](VF x) HWY_ATTR {
    return hn::Mul(x, hn::Set(DF(), scalar::kPlaceTop));
  });
  VI start = hn::Load(DI(), table.few_start.data());
  VI bound = hn::Load(DI(), table.few_bound.data());
  VI first_bin = hn::Set(DI(), table.first_bin);

  uint8_t Scalar(float r, float v, uint32_t random) const {
    return scalar::LevelCode(table, r, v, random, bits);
  }
  template <size_t U>
  HWY_INLINE void Vectors(const VF (&r)[U], const VU (&not_random)[U], VU (&index)[U],
                          VU (&)[U]) const {
    const DI di;
    const __m512i one = _mm512_set1_epi32(1);
    VI bin[U];
    for (size_t k = 0; k < U; ++k) {
      bin[k] = hn::Max(hn::ShiftRightSame(hn::BitCast(di, r[k]), table.shift), first_bin);
    }
    for (size_t k = 0; k < U; ++k) {
      const __m512i below = _mm512_permutexvar_epi32(bin[k].raw, start.raw);
      const __m512i above = _mm512_permutexvar_epi32(bin[k].raw, bound.raw);
      const __mmask16 past = _mm512_cmpgt_epi32_mask(hn::BitCast(di, r[k]).raw, above);
      index[k] = VU{_mm512_mask_add_epi32(below, past, below, one)};
    }
    VI place[U];
    for (size_t k = 0; k < U; ++k) {
      place[k] = Truncate(hn::Mul(hn::Sub(r[k], level(index[k])), to_place(index[k])));
    }
    for (size_t k = 0; k < U; ++k) {
      // Iff the random fraction, 2^30 - 1 - rest, is below the place.
      const __m512i rest = hn::ShiftRight<2>(not_random[k]).raw;
      const __m512i sum = _mm512_add_epi32(place[k].raw, rest);
      const __mmask16 up = _mm512_test_epi32_mask(sum, _mm512_set1_epi32(1 << 30));
      index[k] = VU{_mm512_mask_add_epi32(index[k].raw, up, index[k].raw, one)};
    }
  }
};
#elif HWY_TARGET == HWY_AVX2
// The same search by masks, -1 for above and 0 for not: permutations across both halves of a
// vector, of which it has two in place of four, take the longest of all instructions here on
// some processors. What is looked up stands in the order of -index, modulo 8 or 4.
template <bool kWithZero>
struct ComparedLevelsRounder {
  static constexpr bool kHasZero = kWithZero, kClamp = !kHasZero;  // as above
  static constexpr bool kInverted = false, kNegated = true;

  ComparedLevelsRounder(const LevelTable& levels, int code_bits)
      : table(levels), bits(code_bits) {
    const __m256i backward = _mm256_setr_epi32(0, 7, 6, 5, 4, 3, 2, 1);
    const __m256i odd = _mm256_setr_epi32(1, 7, 5, 3, 1, 7, 5, 3);
    const __m256 all = _mm256_loadu_ps(table.level.data());
    // With 1 taken off the bits, so that equality counts as above.
    const __m256i bounds = _mm256_sub_epi32(_mm256_castps_si256(all), _mm256_set1_epi32(1));
    second = _mm256_permutevar8x32_epi32(bounds, _mm256_set1_epi32(2));
    fourth = _mm256_permutevar8x32_epi32(bounds, _mm256_set1_epi32(4));
    sixth = _mm256_permutevar8x32_epi32(bounds, _mm256_set1_epi32(6));
    others = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(bounds, odd));
    level = _mm256_permutevar8x32_ps(all, backward);
    // To a place in one step: see LevelTable::places_fit.
    to_place = _mm256_mul_ps(
        _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.inverse_width.data()), backward),
        _mm256_set1_ps(scalar::kPlaceTop));
  }

  const LevelTable& table;
  int bits;
  __m256i second, fourth, sixth;
  __m256 others, level, to_place;

  uint8_t Scalar(float r, float v, uint32_t random) const {
    return scalar::LevelCode(table, r, v, random, bits);
  }
  template <size_t U>
  HWY_INLINE void Vectors(const VF (&r)[U], const VU (&random)[U], VU (&index)[U],
                          VU (&)[U]) const {
    const auto above = [](VF x, __m256i bound) HWY_ATTR {
      return _mm256_cmpgt_epi32(_mm256_castps_si256(x.raw), bound);
    };
    const auto twice = [](__m256i x) HWY_ATTR { return _mm256_add_epi32(x, x); };
    __m256i at[U], place[U];
    for (size_t k = 0; k < U; ++k) {
      const __m256i upper = above(r[k], fourth);
      const __m256i half = above(r[k], _mm256_blendv_epi8(second, sixth, upper));
      at[k] = _mm256_add_epi32(twice(upper), half);
    }
    for (size_t k = 0; k < U; ++k) {
      const __m256 bound = _mm256_permutevar_ps(others, at[k]);
      at[k] = _mm256_add_epi32(twice(at[k]), above(r[k], _mm256_castps_si256(bound)));
    }
    for (size_t k = 0; k < U; ++k) {
      const __m256 past = _mm256_sub_ps(r[k].raw, _mm256_permutevar8x32_ps(level, at[k]));
      place[k] =
          _mm256_cvttps_epi32(_mm256_mul_ps(past, _mm256_permutevar8x32_ps(to_place, at[k])));
    }
    for (size_t k = 0; k < U; ++k) {
      const __m256i up = _mm256_cmpgt_epi32(place[k], hn::ShiftRight<2>(random[k]).raw);
      index[k] = VU{_mm256_add_epi32(at[k], up)};
    }
  }
};
#endif

// Any number of levels: a table over the leading bits of r, then at most `advance` steps.
struct ManyLevelsRounder : UsualRounder {
  static constexpr bool kClamp = true, kHasZero = true;  // bins end at 1

  const LevelTable& table;
  int bits;

  uint8_t Scalar(float r, float v, uint32_t random) const {
    return scalar::LevelCode(table, r, v, random, bits);
  }
#if HWY_TARGET != HWY_SCALAR
  Table128<DF> level{table.level.data()};
  Table128<DF> next_level{table.level.data() + 1};
  Table128<DF> inverse_width{table.inverse_width.data()};

  template <size_t U>
  HWY_INLINE void Vectors(const VF (&r)[U], const VU (&not_random)[U], VU (&index)[U],
                          VU (&)[U]) const {
    const DU du;
    const DI di;
    const VI first = hn::Set(di, table.first_bin);
    for (size_t k = 0; k < U; ++k) {
      const VI leading = hn::ShiftRightSame(hn::BitCast(di, r[k]), table.shift);
      const VI bin = hn::Sub(hn::Max(leading, first), first);
      index[k] = hn::BitCast(du, hn::GatherIndex(di, table.start.data(), bin));
    }
    for (int step = 0; step < table.advance; ++step) {
      for (size_t k = 0; k < U; ++k) {
        const auto past = hn::RebindMask(du, hn::Ge(r[k], next_level(index[k])));
        index[k] = hn::Sub(index[k], hn::VecFromMask(du, past));
      }
    }
    RoundUp(r, not_random, level, inverse_width, index);
  }
#endif
};

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
