#include "elastiquant/kernels/quantize.h"

#include "elastiquant/kernels/quantize_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/quantize.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
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

HWY_INLINE VI Truncate(VF y) { return hn::ConvertTo(DI(), y); }

// Sets bit bits-1 of each code to the top bit of `signs`, except where the index is 0.
HWY_INLINE VU WithSign(VU index, VU signs, int bits) {
  const DU du;
  const VU sign = hn::And(hn::ShiftRightSame(signs, 32 - bits), hn::Set(du, 1u << (bits - 1)));
  return hn::Or(index, hn::IfThenZeroElse(hn::Eq(index, hn::Zero(du)), sign));
}

// A Rounder turns scaled sizes y, the floats' bits v and random bits into codes; `Scalar` does
// one coordinate, `Vector` a vector of them.
template <class Rounder>
HWY_INLINE void Quantize(const float* HWY_RESTRICT v, size_t n, RandomRun run,
                         const Scaler& scaler, const Rounder& rounder,
                         uint8_t* HWY_RESTRICT codes) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const DF df;
  const DU du;
  const size_t lanes = hn::Lanes(df);
  const VF pre = hn::Set(df, scaler.pre);
  const VF mul = hn::Set(df, scaler.mul);
  const VF top = hn::Set(df, scaler.top);
  RandomVectors<DU> random(du, run);
  for (; i + lanes <= n; i += lanes) {
    const VF x = hn::LoadU(df, v + i);
    const VF y = hn::Min(hn::Mul(hn::Mul(hn::Abs(x), pre), mul), top);
    const VU code = rounder.Vector(y, hn::BitCast(du, x), random.Next());
    hn::StoreU(hn::TruncateTo(DB(), code), DB(), codes + i);
  }
#endif
  for (; i < n; ++i) {
    const uint32_t bits = RandomBits(run.keys, run.first + static_cast<uint32_t>(i));
    codes[i] = rounder.Scalar(ScaledSize(scaler, v[i]), v[i], bits);
  }
}

struct UniformRounder {
  int bits;

  uint8_t Scalar(float y, float v, uint32_t random) const {
    return scalar::SignedCode(v, scalar::RoundUniform(y, random, bits), bits);
  }
  HWY_INLINE VU Vector(VF y, VU v, VU random) const {
    const VU place = hn::BitCast(DU(), Truncate(y));
    const VU carry = hn::ShiftRightSame(hn::Not(random), bits);
    const VU index = hn::ShiftRightSame(hn::Add(place, carry), UniformDigits(bits));
    return WithSign(index, v, bits);
  }
};

struct DitheredRounder {
  int bits;

  uint8_t Scalar(float y, float v, uint32_t random) const {
    const int32_t k = scalar::RoundDithered(y, std::bit_cast<int32_t>(v) < 0, random, bits);
    return static_cast<uint8_t>(k < 0 ? -k | 1 << (bits - 1) : k);
  }
  HWY_INLINE VU Vector(VF y, VU v, VU random) const {
    const DI di;
    const VI negative = hn::BroadcastSignBit(hn::BitCast(di, v));
    const VI place = hn::Sub(hn::Xor(Truncate(y), negative), negative);
    const VI shift = hn::BitCast(di, hn::ShiftRightSame(random, bits));
    const VI k = hn::ShiftRightSame(hn::Add(place, shift), UniformDigits(bits));
    return WithSign(hn::BitCast(DU(), hn::Abs(k)), hn::BitCast(DU(), k), bits);
  }
};

struct HalvingRounder {
  int bits;
  scalar::Halving halving;

  uint8_t Scalar(float r, float v, uint32_t random) const {
    return scalar::SignedCode(v, scalar::RoundHalving(halving, r, random), bits);
  }
  HWY_INLINE VU Vector(VF r, VU v, VU random) const {
    const DF df;
    const DI di;
    const VF lowest = hn::Set(df, halving.lowest);
    const VF low = hn::Mul(hn::Min(r, lowest), hn::Set(df, halving.to_place));
    const VI above = hn::Sub(hn::BitCast(di, r), hn::Set(di, halving.bias));
    const VI place =
        hn::IfThenElse(hn::RebindMask(di, hn::Lt(r, lowest)), Truncate(low), above);
    const VU carry = hn::ShiftRight<9>(hn::Not(random));
    const VU index = hn::ShiftRight<23>(hn::Add(hn::BitCast(DU(), place), carry));
    return WithSign(index, v, bits);
  }
};

#if HWY_TARGET != HWY_SCALAR
// The upper of level j and j+1 iff the random fraction is below the place between them.
HWY_INLINE VU RoundUp(VF r, VU j, VF level, VF inverse_width, VU random) {
  const DF df;
  const DI di;
  const VF place =
      hn::Mul(hn::Mul(hn::Sub(r, level), inverse_width), hn::Set(df, scalar::kPlaceTop));
  const VI fraction = hn::BitCast(di, hn::ShiftRight<2>(random));
  const auto up = hn::Lt(fraction, Truncate(place));
  return hn::Sub(j, hn::BitCast(DU(), hn::VecFromMask(di, up)));
}
#endif

// At most 8 levels, all in registers: a binary search by permutations.
struct FewLevelsRounder {
  const LevelTable& table;
  int bits;
#if HWY_TARGET != HWY_SCALAR
  Table8<DF> level{table.level.data()};
  Table8<DF> inverse_width{table.inverse_width.data()};
  Table8<DF> level_1{table.level.data() + 1};
  Table8<DF> level_2{table.level.data() + 2};
#endif

  uint8_t Scalar(float r, float v, uint32_t random) const {
    return scalar::SignedCode(v, scalar::RoundLevels(table, r, random), bits);
  }
#if HWY_TARGET != HWY_SCALAR
  HWY_INLINE VU Vector(VF r, VU v, VU random) const {
    const DF df;
    const DU du;
    const auto step = [&](VF bound, uint32_t width) HWY_ATTR {
      return hn::IfThenElseZero(hn::RebindMask(du, hn::Ge(r, bound)), hn::Set(du, width));
    };
    VU j = step(hn::Set(df, table.level[4]), 4);
    j = hn::Add(j, step(level_2(j), 2));
    j = hn::Add(j, step(level_1(j), 1));
    return WithSign(RoundUp(r, j, level(j), inverse_width(j), random), v, bits);
  }
#endif
};

// Any number of levels: a table over the leading bits of r, then at most `advance` steps.
struct ManyLevelsRounder {
  const LevelTable& table;
  int bits;

  uint8_t Scalar(float r, float v, uint32_t random) const {
    return scalar::SignedCode(v, scalar::RoundLevels(table, r, random), bits);
  }
#if HWY_TARGET != HWY_SCALAR
  HWY_INLINE VU Vector(VF r, VU v, VU random) const {
    const DF df;
    const DI di;
    const VI first = hn::Set(di, table.first_bin);
    const VI leading = hn::ShiftRightSame(hn::BitCast(di, r), table.shift);
    VI j = hn::GatherIndex(di, table.start.data(), hn::Sub(hn::Max(leading, first), first));
    for (int k = 0; k < table.advance; ++k) {
      const VF next = hn::GatherIndex(df, table.level.data() + 1, j);
      j = hn::Sub(j, hn::VecFromMask(di, hn::RebindMask(di, hn::Ge(r, next))));
    }
    const VF level = hn::GatherIndex(df, table.level.data(), j);
    const VF inverse_width = hn::GatherIndex(df, table.inverse_width.data(), j);
    return WithSign(RoundUp(r, hn::BitCast(DU(), j), level, inverse_width, random), v, bits);
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
