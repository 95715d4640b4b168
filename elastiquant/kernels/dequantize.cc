#include "elastiquant/kernels/dequantize.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/dequantize.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "elastiquant/kernels/lanes-inl.h"
#include "elastiquant/kernels/lookup-inl.h"
#include "elastiquant/kernels/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Store {
  void Scalar(float value, float* out) const { *out = value; }
  HWY_INLINE void Vector(VF value, float* out) const { hn::StoreU(value, DF(), out); }
};
struct Add {
  float weight;
  void Scalar(float value, float* out) const { *out += weight * value; }
  HWY_INLINE void Vector(VF value, float* out) const {
    const DF df;
    hn::StoreU(hn::Add(hn::LoadU(df, out), hn::Mul(hn::Set(df, weight), value)), df, out);
  }
};

// The same of values that a Source gives times the weight.
struct AddWeighted {
  float weight;
  void Scalar(float value, float* out) const { *out += weight * value; }
  HWY_INLINE void Vector(VF weighted, float* out) const {
    const DF df;
    hn::StoreU(hn::Add(hn::LoadU(df, out), weighted), df, out);
  }
};

// A Source gives the value of coordinate i, or of the vector of coordinates from i on, in
// order.
template <class Source, class Sink>
HWY_INLINE void Dequantize(const uint8_t* HWY_RESTRICT codes, size_t n, Source source,
                           const Sink& sink, float* HWY_RESTRICT out) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const size_t lanes = hn::Lanes(DF());
  for (; i + lanes <= n; i += lanes) {
    sink.Vector(source.Vector(hn::PromoteTo(DU(), hn::LoadU(DB(), codes + i))), out + i);
  }
#endif
  for (; i < n; ++i) sink.Scalar(source.Scalar(codes[i], i), out + i);
}

template <class Source>
HWY_INLINE void Dequantize(const uint8_t* codes, size_t n, const Source& source, Accumulate how,
                           float* out) {
  if (how.add) {
    Dequantize(codes, n, source, Add{how.weight}, out);
  } else {
    Dequantize(codes, n, source, Store{}, out);
  }
}

#if HWY_TARGET != HWY_SCALAR
// The sign of codes, as the sign bit of floats.
HWY_INLINE VF SignOf(VU code, int bits) {
  const DU du;
  const VU sign = hn::And(hn::ShiftLeftSame(code, 32 - bits), hn::Set(du, 0x80000000u));
  return hn::BitCast(DF(), sign);
}
#endif

// Of codes of at most 4 bits: times norm and weight in the table already, which is in
// registers. Rounding is the same for both signs, so it may be put on last. Codes of 3 bits and
// less are looked up whole, and those of 4 where a vector has as many lanes.
struct FewValues {
  FewValues(const ValueTable& values, float bucket_norm, float value_weight)
      : table(values), norm(bucket_norm), weight(value_weight) {}

  const ValueTable& table;
  float norm, weight;

  float Scalar(uint8_t code, size_t) const { return norm * table.value[code]; }
#if HWY_TARGET != HWY_SCALAR
  Table8<DF> weighted = Table8<DF>(table.value.data()).Map([this](VF x) HWY_ATTR {
    return hn::Mul(hn::Set(DF(), weight), hn::Mul(hn::Set(DF(), norm), x));
  });
  bool whole = table.bits < 4 || hn::MaxLanes(DF()) >= 16;

  HWY_INLINE VF Vector(VU code) const {
    if (whole) return weighted(code);
    const VU index = hn::And(code, hn::Set(DU(), 7));
    return hn::Xor(weighted(index), SignOf(code, 4));
  }
#endif
};

// Levels looked up by the index, and the sign put on as a bit.
struct ManyValues {
  ManyValues(const ValueTable& values, float bucket_norm) : table(values), norm(bucket_norm) {}

  const ValueTable& table;
  float norm;

  float Scalar(uint8_t code, size_t) const { return norm * table.value[code]; }
#if HWY_TARGET != HWY_SCALAR
  Table128<DF> level{table.value.data()};

  HWY_INLINE VF Vector(VU code) const {
    const VU index = hn::And(code, hn::Set(DU(), (1u << (table.bits - 1)) - 1));
    return hn::Mul(hn::Set(DF(), norm), hn::Xor(level(index), SignOf(code, table.bits)));
  }
#endif
};

// Any table, looked up by the whole digit.
template <class Table>
struct DigitValues {
  DigitValues(const float* values, float bucket_scale) : table(values), scale(bucket_scale) {}

  const float* table;
  float scale;

  float Scalar(uint8_t digit, size_t) const { return scale * table[digit]; }
#if HWY_TARGET != HWY_SCALAR
  Table lookup{table};

  HWY_INLINE VF Vector(VU digit) const { return hn::Mul(hn::Set(DF(), scale), lookup(digit)); }
#endif
};
#if HWY_TARGET == HWY_SCALAR
using FewDigitValues = DigitValues<void>;
using SomeDigitValues = DigitValues<void>;
using ManyDigitValues = DigitValues<void>;
#else
struct GatheredTable {
  explicit GatheredTable(const float* values) : table(values) {}
  const float* table;
  HWY_INLINE VF operator()(VU index) const {
    return hn::GatherIndex(DF(), table, hn::BitCast(DI(), index));
  }
};
using FewDigitValues = DigitValues<Table8<DF> >;
using SomeDigitValues = DigitValues<Table16<DF> >;
using ManyDigitValues = DigitValues<GatheredTable>;
#endif

// k - u in fixed point with UniformDigits(bits) digits, where u + 1/2 has the random digits.
struct DitheredValues {
  RandomRun run;
  float step;
  int bits;
#if HWY_TARGET != HWY_SCALAR
  RandomVectors<DU> random{DU(), run};
#endif

  float Scalar(uint8_t code, size_t i) const {
    const int digits = UniformDigits(bits);
    const int32_t index = code & ((1 << (bits - 1)) - 1);
    const int32_t k = code >> (bits - 1) != 0 ? -index : index;
    const uint32_t bits_i = RandomBits(run.keys, run.first + static_cast<uint32_t>(i));
    const int32_t place =
        k * (1 << digits) - static_cast<int32_t>(bits_i >> bits) + (1 << (digits - 1));
    return step * (static_cast<float>(place) * InverseOne());
  }
#if HWY_TARGET != HWY_SCALAR
  HWY_INLINE VF Vector(VU code) {
    const DF df;
    const DU du;
    const DI di;
    const int digits = UniformDigits(bits);
    const VI index = hn::BitCast(di, hn::And(code, hn::Set(du, (1u << (bits - 1)) - 1)));
    const VI negative =
        hn::BroadcastSignBit(hn::BitCast(di, hn::ShiftLeftSame(code, 32 - bits)));
    const VI k = hn::Sub(hn::Xor(index, negative), negative);
    const VI u = hn::BitCast(di, hn::ShiftRightSame(random.Next(), bits));
    const VI place =
        hn::Add(hn::Sub(hn::ShiftLeftSame(k, digits), u), hn::Set(di, 1 << (digits - 1)));
    const VF exact = hn::Mul(hn::ConvertTo(df, place), hn::Set(df, InverseOne()));
    return hn::Mul(hn::Set(df, step), exact);
  }
#endif
  float InverseOne() const { return 1.0f / static_cast<float>(1 << UniformDigits(bits)); }
};

void DequantizeLevelsOf(const uint8_t* codes, size_t n, const ValueTable& table, float norm,
                        Accumulate how, float* out) {
  if (table.bits <= 4 && how.add) {
    Dequantize(codes, n, FewValues(table, norm, how.weight), AddWeighted{how.weight}, out);
  } else if (table.bits <= 4) {
    Dequantize(codes, n, FewValues(table, norm, 1), Store{}, out);
  } else {
    Dequantize(codes, n, ManyValues(table, norm), how, out);
  }
}

void DequantizeDigitsOf(const uint8_t* digits, size_t n, const float* table, size_t base,
                        float scale, Accumulate how, float* out) {
  if (base <= 8) {
    Dequantize(digits, n, FewDigitValues(table, scale), how, out);
  } else if (base <= 16) {
    Dequantize(digits, n, SomeDigitValues(table, scale), how, out);
  } else {
    Dequantize(digits, n, ManyDigitValues(table, scale), how, out);
  }
}

void DequantizeDitheredOf(const uint8_t* codes, size_t n, RandomRun random, float step,
                          int bits, Accumulate how, float* out) {
  Dequantize(codes, n, DitheredValues{random, step, bits}, how, out);
}

uint8_t MaxIndexOf(const uint8_t* codes, size_t n, int bits) {
  const auto index_bits = static_cast<uint8_t>((1 << (bits - 1)) - 1);
  uint8_t max = 0;
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  const auto mask = hn::Set(d, index_bits);
  auto top = hn::Zero(d);
  for (; i + lanes <= n; i += lanes) top = hn::Max(top, hn::And(hn::LoadU(d, codes + i), mask));
  HWY_ALIGN uint8_t tops[HWY_MAX_BYTES];
  hn::Store(top, d, tops);
  max = *std::max_element(tops, tops + lanes);
#endif
  for (; i < n; ++i) max = std::max(max, static_cast<uint8_t>(codes[i] & index_bits));
  return max;
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(DequantizeLevelsOf);
HWY_EXPORT(DequantizeDigitsOf);
HWY_EXPORT(DequantizeDitheredOf);
HWY_EXPORT(MaxIndexOf);

void DequantizeLevels(const uint8_t* codes, size_t n, const ValueTable& table, float norm,
                      Accumulate how, float* out) {
  HWY_DYNAMIC_DISPATCH(DequantizeLevelsOf)(codes, n, table, norm, how, out);
}

void DequantizeDigits(const uint8_t* digits, size_t n, const float* table, size_t base,
                      float scale, Accumulate how, float* out) {
  HWY_DYNAMIC_DISPATCH(DequantizeDigitsOf)(digits, n, table, base, scale, how, out);
}

void DequantizeDithered(const uint8_t* codes, size_t n, RandomRun random, float step, int bits,
                        Accumulate how, float* out) {
  HWY_DYNAMIC_DISPATCH(DequantizeDitheredOf)(codes, n, random, step, bits, how, out);
}

uint8_t MaxIndex(const uint8_t* codes, size_t n, int bits) {
  return HWY_DYNAMIC_DISPATCH(MaxIndexOf)(codes, n, bits);
}

}  // namespace elastiquant
#endif
