#include "elastiquant/kernels/quantize.h"

#include "elastiquant/kernels/quantize_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/quantize.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "elastiquant/kernels/lookup-inl.h"
#include "elastiquant/kernels/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using DB = hn::Rebind<uint8_t, DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
using VI = hn::Vec<DI>;

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

// The loops work on kGroup vectors at a time, each step for all of them, so that their chains
// of dependent instructions overlap.
constexpr size_t kGroup = 4;

template <size_t U>
HWY_INLINE void StoreCodes(const VU (&code)[U], uint8_t* codes) {
  for (size_t k = 0; k < U; ++k) {
    hn::StoreU(hn::TruncateTo(DB(), code[k]), DB(), codes + k * hn::Lanes(DF()));
  }
}

#if HWY_TARGET <= HWY_AVX3
// Packing works in 128-bit blocks; the permutation puts the four vectors' parts in order.
HWY_INLINE void StoreCodes(const VU (&code)[kGroup], uint8_t* codes) {
  const __m512i low = _mm512_packus_epi32(code[0].raw, code[1].raw);
  const __m512i high = _mm512_packus_epi32(code[2].raw, code[3].raw);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(codes, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(low, high)));
}
#elif HWY_TARGET == HWY_AVX2
HWY_INLINE void StoreCodes(const VU (&code)[kGroup], uint8_t* codes) {
  const __m256i low = _mm256_packus_epi32(code[0].raw, code[1].raw);
  const __m256i high = _mm256_packus_epi32(code[2].raw, code[3].raw);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes),
                      _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order));
}
#endif

#if HWY_TARGET != HWY_SCALAR
// Quantises U vectors at v, with a scaler whose pre is 1. A Rounder turns scaled sizes y, the
// floats' bits and random bits into codes; `Scalar` does one coordinate, `Vectors` several
// vectors of them.
template <size_t U, class Rounder>
HWY_INLINE void QuantizeVectors(const float* HWY_RESTRICT v, VF mul, VF top,
                                RandomVectors<DU>& random, const Rounder& rounder,
                                uint8_t* HWY_RESTRICT codes) {
  VF y[U];
  VU bits[U], random_bits[U], code[U];
  for (size_t k = 0; k < U; ++k) {
    y[k] = hn::LoadU(DF(), v + k * hn::Lanes(DF()));
    bits[k] = hn::BitCast(DU(), y[k]);
    y[k] = hn::Mul(hn::Abs(y[k]), mul);
    if constexpr (Rounder::kClamp) y[k] = hn::Min(y[k], top);
  }
  random.Next(random_bits);
  rounder.Vectors(y, bits, random_bits, code);
  StoreCodes(code, codes);
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

struct UniformRounder {
  static constexpr bool kClamp = true;
  int bits;

  uint8_t Scalar(float y, float v, uint32_t random) const {
    return scalar::SignedCode(v, scalar::RoundUniform(y, random, bits), bits);
  }
  template <size_t U>
  HWY_INLINE void Vectors(const VF (&y)[U], const VU (&v)[U], const VU (&random)[U],
                          VU (&code)[U]) const {
    for (size_t k = 0; k < U; ++k) {
      const VU place = hn::BitCast(DU(), Truncate(y[k]));
      const VU carry = hn::ShiftRightSame(hn::Not(random[k]), bits);
      code[k] = hn::ShiftRightSame(hn::Add(place, carry), UniformDigits(bits));
    }
    for (size_t k = 0; k < U; ++k) code[k] = WithSign(code[k], v[k], bits);
  }
};

struct DitheredRounder {
  static constexpr bool kClamp = true;
  int bits;

  uint8_t Scalar(float y, float v, uint32_t random) const {
    const int32_t k = scalar::RoundDithered(y, std::bit_cast<int32_t>(v) < 0, random, bits);
    return static_cast<uint8_t>(k < 0 ? -k | 1 << (bits - 1) : k);
  }
  template <size_t U>
  HWY_INLINE void Vectors(const VF (&y)[U], const VU (&v)[U], const VU (&random)[U],
                          VU (&code)[U]) const {
    const DI di;
    for (size_t k = 0; k < U; ++k) {
      const VI negative = hn::BroadcastSignBit(hn::BitCast(di, v[k]));
      const VI place = hn::Sub(hn::Xor(Truncate(y[k]), negative), negative);
      const VI shift = hn::BitCast(di, hn::ShiftRightSame(random[k], bits));
      const VI index = hn::ShiftRightSame(hn::Add(place, shift), UniformDigits(bits));
      code[k] = hn::BitCast(DU(), index);
    }
    for (size_t k = 0; k < U; ++k) {
      const VU size = hn::BitCast(DU(), hn::Abs(hn::BitCast(di, code[k])));
      code[k] = WithSign(size, code[k], bits);
    }
  }
};

struct HalvingRounder {
  static constexpr bool kClamp = true;
  int bits;
  scalar::Halving halving;

  uint8_t Scalar(float r, float v, uint32_t random) const {
    return scalar::SignedCode(v, scalar::RoundHalving(halving, r, random), bits);
  }
  template <size_t U>
  HWY_INLINE void Vectors(const VF (&r)[U], const VU (&v)[U], const VU (&random)[U],
                          VU (&code)[U]) const {
    const DF df;
    const DI di;
    const VF lowest = hn::Set(df, halving.lowest);
    for (size_t k = 0; k < U; ++k) {
      const VF low = hn::Mul(hn::Min(r[k], lowest), hn::Set(df, halving.to_place));
      const VI above = hn::Sub(hn::BitCast(di, r[k]), hn::Set(di, halving.bias));
      const auto is_low = hn::RebindMask(di, hn::Lt(r[k], lowest));
      code[k] = hn::BitCast(DU(), hn::IfThenElse(is_low, Truncate(low), above));
    }
    for (size_t k = 0; k < U; ++k) {
      const VU carry = hn::ShiftRight<9>(hn::Not(random[k]));
      code[k] = hn::ShiftRight<23>(hn::Add(code[k], carry));
    }
    for (size_t k = 0; k < U; ++k) code[k] = WithSign(code[k], v[k], bits);
  }
};

#if HWY_TARGET != HWY_SCALAR
// From level j to j+1 iff the random fraction is below the place between them, then the sign.
template <size_t U, class Level, class InverseWidth>
HWY_INLINE void RoundAndSign(const VF (&r)[U], const VU (&v)[U], const VU (&random)[U],
                             const Level& level, const InverseWidth& inverse_width, int bits,
                             VU (&j)[U]) {
  VU place[U];
  for (size_t k = 0; k < U; ++k) {
    const VF fraction = hn::Mul(hn::Sub(r[k], level(j[k])), inverse_width(j[k]));
    const VF scaled = hn::Mul(fraction, hn::Set(DF(), scalar::kPlaceTop));
    place[k] = hn::BitCast(DU(), Truncate(scaled));
  }
  for (size_t k = 0; k < U; ++k) {
    const VU carry = hn::ShiftRight<2>(hn::Not(random[k]));
    j[k] = hn::Add(j[k], hn::ShiftRight<30>(hn::Add(place[k], carry)));
  }
  for (size_t k = 0; k < U; ++k) j[k] = WithSign(j[k], v[k], bits);
}
#endif

// At most 8 levels, all in registers: a binary search by permutations. Positive floats compare
// as integers do, and the sign of a difference is one digit of the index.
struct FewLevelsRounder {
  static constexpr bool kClamp = false;  // above the last level every place is 0

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
    return scalar::SignedCode(v, scalar::RoundLevels(table, r, random), bits);
  }
#if HWY_TARGET != HWY_SCALAR
  VU first;
  Table8<DF> level{table.level.data()};
  Table8<DF> inverse_width{table.inverse_width.data()};
  Table8<DF> second{table.level.data()};
  Table8<DF> third{table.level.data()};

  template <size_t U>
  HWY_INLINE void Vectors(const VF (&r)[U], const VU (&v)[U], const VU (&random)[U],
                          VU (&code)[U]) const {
    const DU du;
    // 2 j + 1 if r is above the bound, else 2 j.
    const auto next = [&](VU j, VU bound, VF x) HWY_ATTR {
      const VU above = hn::ShiftRight<31>(hn::Sub(bound, hn::BitCast(du, x)));
      return hn::Add(hn::Add(j, j), above);
    };
    for (size_t k = 0; k < U; ++k) {
      code[k] = hn::ShiftRight<31>(hn::Sub(first, hn::BitCast(du, r[k])));
    }
    for (size_t k = 0; k < U; ++k) {
      code[k] = next(code[k], hn::BitCast(du, second(code[k])), r[k]);
    }
    for (size_t k = 0; k < U; ++k) {
      code[k] = next(code[k], hn::BitCast(du, third(code[k])), r[k]);
    }
    RoundAndSign(r, v, random, level, inverse_width, bits, code);
  }
#endif
};

#if HWY_TARGET <= HWY_AVX3
// At most 8 levels with 16 bins, a vector's lanes: no search, one comparison.
struct BinnedLevelsRounder {
  static constexpr bool kClamp = false;  // as above
  const LevelTable& table;
  int bits;
  Table8<DF> level{table.level.data()};
  Table8<DF> inverse_width{table.inverse_width.data()};
  VI start = hn::Load(DI(), table.few_start.data());
  VI bound = hn::Load(DI(), table.few_bound.data());
  VI first_bin = hn::Set(DI(), table.first_bin);

  uint8_t Scalar(float r, float v, uint32_t random) const {
    return scalar::SignedCode(v, scalar::RoundLevels(table, r, random), bits);
  }
  template <size_t U>
  HWY_INLINE void Vectors(const VF (&r)[U], const VU (&v)[U], const VU (&random)[U],
                          VU (&code)[U]) const {
    const DI di;
    VI bin[U];
    for (size_t k = 0; k < U; ++k) {
      bin[k] = hn::Max(hn::ShiftRightSame(hn::BitCast(di, r[k]), table.shift), first_bin);
    }
    for (size_t k = 0; k < U; ++k) {
      const VI below = VI{_mm512_permutexvar_epi32(bin[k].raw, start.raw)};
      const VI above = VI{_mm512_permutexvar_epi32(bin[k].raw, bound.raw)};
      const VI past = hn::BroadcastSignBit(hn::Sub(above, hn::BitCast(di, r[k])));
      code[k] = hn::BitCast(DU(), hn::Sub(below, past));
    }
    RoundAndSign(r, v, random, level, inverse_width, bits, code);
  }
};
#endif

// Any number of levels: a table over the leading bits of r, then at most `advance` steps.
struct ManyLevelsRounder {
  static constexpr bool kClamp = true;  // bins end at 1

  const LevelTable& table;
  int bits;

  uint8_t Scalar(float r, float v, uint32_t random) const {
    return scalar::SignedCode(v, scalar::RoundLevels(table, r, random), bits);
  }
#if HWY_TARGET != HWY_SCALAR
  Table128<DF> level{table.level.data()};
  Table128<DF> next_level{table.level.data() + 1};
  Table128<DF> inverse_width{table.inverse_width.data()};

  template <size_t U>
  HWY_INLINE void Vectors(const VF (&r)[U], const VU (&v)[U], const VU (&random)[U],
                          VU (&code)[U]) const {
    const DU du;
    const DI di;
    const VI first = hn::Set(di, table.first_bin);
    for (size_t k = 0; k < U; ++k) {
      const VI leading = hn::ShiftRightSame(hn::BitCast(di, r[k]), table.shift);
      const VI bin = hn::Sub(hn::Max(leading, first), first);
      code[k] = hn::BitCast(du, hn::GatherIndex(di, table.start.data(), bin));
    }
    for (int step = 0; step < table.advance; ++step) {
      for (size_t k = 0; k < U; ++k) {
        const auto past = hn::RebindMask(du, hn::Ge(r[k], next_level(code[k])));
        code[k] = hn::Sub(code[k], hn::VecFromMask(du, past));
      }
    }
    RoundAndSign(r, v, random, level, inverse_width, bits, code);
  }
#endif
};

void QuantizeUniformOf(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                       int bits, uint8_t* codes) {
  Quantize(v, n, random, scaler, UniformRounder{bits}, codes);
}

void QuantizeDitheredOf(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                        int bits, uint8_t* codes) {
  Quantize(v, n, random, scaler, DitheredRounder{bits}, codes);
}

void QuantizeHalvingOf(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                       int bits, uint8_t* codes) {
  Quantize(v, n, random, scaler, HalvingRounder{bits, scalar::MakeHalving(bits)}, codes);
}

void QuantizeLevelsOf(const float* v, size_t n, RandomRun random, const Scaler& scaler,
                      const LevelTable& table, int bits, uint8_t* codes) {
#if HWY_TARGET <= HWY_AVX3
  if (table.has_few_bins) {
    return Quantize(v, n, random, scaler, BinnedLevelsRounder{table, bits}, codes);
  }
#endif
  if (table.count <= 8) {
    Quantize(v, n, random, scaler, FewLevelsRounder{table, bits}, codes);
  } else {
    Quantize(v, n, random, scaler, ManyLevelsRounder{table, bits}, codes);
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
