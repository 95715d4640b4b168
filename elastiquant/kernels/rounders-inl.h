// From scaled sizes and random bits to indices, for the kinds of levels that quantisers have.
// This file is included once for each SIMD target.
//
// A rounder is what Quantize() of quantize.cc takes: it turns scaled sizes y, the bits of the
// floats and random bits into indices and signs. `Scalar` does so for one coordinate, and
// `Vectors` for several vectors of them. If kInverted is set, `Vectors` is given the
// complements of the random bits; `Scalar` is always given the bits as they are. If kNegated is
// set, `Vectors` gives minus the indices. If kClamp is set, sizes are cut off at the scaler's
// top before. Without kHasZero what is called an index is the end of an interval.
#if defined(ELASTIQUANT_KERNELS_ROUNDERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELASTIQUANT_KERNELS_ROUNDERS_INL_H_
#undef ELASTIQUANT_KERNELS_ROUNDERS_INL_H_
#else
#define ELASTIQUANT_KERNELS_ROUNDERS_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "elastiquant/kernels/lanes-inl.h"
#include "elastiquant/kernels/level_table.h"
#include "elastiquant/kernels/lookup-inl.h"
#include "elastiquant/kernels/quantize_scalar.h"

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

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#endif  // once for each target
