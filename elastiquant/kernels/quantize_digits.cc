#include "elastiquant/kernels/quantize_digits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "elastiquant/kernels/quantize_scalar.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/quantize_digits.cc"
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

// The loops work on kGroup vectors at a time, so that their chains of dependent instructions
// overlap.
constexpr size_t kGroup = 4;

inline float Scaled(float v, float pre, float mul, float low, float high) {
  return std::min(std::max(v * pre * mul, low), high);
}

// The index of the level at or below y; the last but one at most.
inline uint32_t FindDigit(const DigitLevels& table, float y) {
  size_t j = 0;
  for (size_t width = std::bit_floor(table.count - 1); width > 0; width /= 2) {
    if (j + width + 1 < table.count && y >= table.bound[j + width]) j += width;
  }
  return static_cast<uint32_t>(j);
}

inline uint8_t RoundDigit(const DigitLevels& table, float y, uint32_t random) {
  const uint32_t j = FindDigit(table, y);
  const float fraction = std::min((y - table.level[j]) * table.inverse_width[j], 1.0f);
  const auto place = static_cast<int32_t>(fraction * scalar::kPlaceTop);
  return static_cast<uint8_t>(j + (static_cast<int32_t>(random >> 2) < place ? 1 : 0));
}

#if HWY_TARGET != HWY_SCALAR
// At most kFew levels: one comparison each.
struct FewDigits {
  explicit FewDigits(const DigitLevels& levels) : table(levels) {}
  const DigitLevels& table;
  Table16<DF> level{table.level.data()};
  Table16<DF> inverse_width{table.inverse_width.data()};

  template <size_t U>
  HWY_INLINE void Find(const VF (&y)[U], VU (&j)[U]) const {
    const DU du;
    for (size_t k = 0; k < U; ++k) j[k] = hn::Zero(du);
    for (size_t l = 1; l + 1 < table.count; ++l) {
      const VF bound = hn::Set(DF(), table.bound[l]);
      for (size_t k = 0; k < U; ++k) {
        const auto past = hn::RebindMask(du, hn::Ge(y[k], bound));
        j[k] = hn::Sub(j[k], hn::VecFromMask(du, past));
      }
    }
  }
};

// A binary search; the bounds from the last level on are infinite.
struct ManyDigits {
  explicit ManyDigits(const DigitLevels& levels)
      : table(levels), half(static_cast<uint32_t>(std::bit_floor(levels.count - 1))) {}
  const DigitLevels& table;
  uint32_t half;

  VF level(VU j) const {
    return hn::GatherIndex(DF(), table.level.data(), hn::BitCast(DI(), j));
  }
  VF inverse_width(VU j) const {
    return hn::GatherIndex(DF(), table.inverse_width.data(), hn::BitCast(DI(), j));
  }

  template <size_t U>
  HWY_INLINE void Find(const VF (&y)[U], VU (&j)[U]) const {
    const DU du;
    for (size_t k = 0; k < U; ++k) j[k] = hn::Zero(du);
    for (uint32_t width = half; width > 0; width /= 2) {
      const VU step = hn::Set(du, width);
      for (size_t k = 0; k < U; ++k) {
        const VU next = hn::Add(j[k], step);
        const VF bound = hn::GatherIndex(DF(), table.bound.data(), hn::BitCast(DI(), next));
        const auto past = hn::RebindMask(du, hn::Ge(y[k], bound));
        j[k] = hn::Add(j[k], hn::IfThenElseZero(past, step));
      }
    }
  }
};

template <size_t U>
HWY_INLINE void StoreDigits(const VU (&digit)[U], uint8_t* HWY_RESTRICT digits) {
  for (size_t k = 0; k < U; ++k) {
    // Not TruncateTo: in Highway 1.0 it is wrong for bytes on AVX3_DL. No digit exceeds 255.
    hn::StoreU(hn::DemoteTo(DB(), hn::BitCast(DI(), digit[k])), DB(),
               digits + k * hn::Lanes(DF()));
  }
}

struct ScaledInput {
  VF pre, mul, low, high;
  template <size_t U>
  HWY_INLINE void Load(const float* HWY_RESTRICT v, VF (&y)[U]) const {
    for (size_t k = 0; k < U; ++k) {
      const VF x = hn::LoadU(DF(), v + k * hn::Lanes(DF()));
      y[k] = hn::Min(hn::Max(hn::Mul(hn::Mul(x, pre), mul), low), high);
    }
  }
};

template <size_t U, class Finder>
HWY_INLINE void QuantizeVectors(const float* HWY_RESTRICT v, const ScaledInput& input,
                                const Finder& finder, RandomVectors<DU>& random,
                                uint8_t* HWY_RESTRICT digits) {
  const DF df;
  VF y[U];
  VU digit[U], not_random[U], place[U];
  input.Load(v, y);
  random.NextInverted(not_random);
  finder.Find(y, digit);
  for (size_t k = 0; k < U; ++k) {
    const VF fraction =
        hn::Mul(hn::Sub(y[k], finder.level(digit[k])), finder.inverse_width(digit[k]));
    const VF cut = hn::Min(fraction, hn::Set(df, 1.0f));
    place[k] =
        hn::BitCast(DU(), hn::ConvertTo(DI(), hn::Mul(cut, hn::Set(df, scalar::kPlaceTop))));
  }
  for (size_t k = 0; k < U; ++k) {
    const VU carry = hn::ShiftRight<2>(not_random[k]);
    digit[k] = hn::Add(digit[k], hn::ShiftRight<30>(hn::Add(place[k], carry)));
  }
  StoreDigits(digit, digits);
}

template <class Finder>
HWY_INLINE size_t QuantizeBlocks(const float* HWY_RESTRICT v, size_t n, RandomRun run,
                                 const ScaledInput& input, const Finder& finder,
                                 uint8_t* HWY_RESTRICT digits) {
  const size_t lanes = hn::Lanes(DF());
  RandomVectors<DU> random(DU(), run);
  size_t i = 0;
  for (; i + kGroup * lanes <= n; i += kGroup * lanes) {
    QuantizeVectors<kGroup>(v + i, input, finder, random, digits + i);
  }
  for (; i + lanes <= n; i += lanes) {
    QuantizeVectors<1>(v + i, input, finder, random, digits + i);
  }
  return i;
}
#endif

void QuantizeDigitsOf(const float* HWY_RESTRICT v, size_t n, RandomRun run,
                      const DigitLevels& table, float pre, float mul,
                      uint8_t* HWY_RESTRICT digits) {
  const float low = table.level[0], high = table.level[table.count - 1];
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const DF df;
  const ScaledInput input{hn::Set(df, pre), hn::Set(df, mul), hn::Set(df, low),
                          hn::Set(df, high)};
  i = table.count <= DigitLevels::kFew
          ? QuantizeBlocks(v, n, run, input, FewDigits(table), digits)
          : QuantizeBlocks(v, n, run, input, ManyDigits(table), digits);
#endif
  for (; i < n; ++i) {
    const uint32_t random = RandomBits(run.keys, run.first + static_cast<uint32_t>(i));
    digits[i] = RoundDigit(table, Scaled(v[i], pre, mul, low, high), random);
  }
}

void QuantizeSidesOf(const float* HWY_RESTRICT v, size_t n, float threshold,
                     uint8_t* HWY_RESTRICT digits) {
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const DF df;
  const DU du;
  const size_t lanes = hn::Lanes(df);
  const VF bound = hn::Set(df, threshold);
  const VU one = hn::Set(du, 1);
  for (; i + lanes <= n; i += lanes) {
    const auto above = hn::RebindMask(du, hn::Ge(hn::LoadU(df, v + i), bound));
    const VU digit[1] = {hn::IfThenElseZero(above, one)};
    StoreDigits(digit, digits + i);
  }
#endif
  for (; i < n; ++i) digits[i] = v[i] >= threshold ? 1 : 0;
}

void QuantizeNearestOf(const float* HWY_RESTRICT v, size_t n, float pre, float mul, int top,
                       uint8_t* HWY_RESTRICT digits) {
  const float middle = 0.5f * static_cast<float>(top) + 0.5f;
  const float last = static_cast<float>(top);
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const DF df;
  const size_t lanes = hn::Lanes(df);
  const ScaledInput input{hn::Set(df, pre), hn::Set(df, mul), hn::Set(df, -middle),
                          hn::Set(df, middle)};
  for (; i + lanes <= n; i += lanes) {
    VF y[1];
    input.Load(v + i, y);
    const VF place = hn::Min(hn::Add(y[0], hn::Set(df, middle)), hn::Set(df, last));
    const VU digit[1] = {hn::BitCast(DU(), hn::ConvertTo(DI(), place))};
    StoreDigits(digit, digits + i);
  }
#endif
  for (; i < n; ++i) {
    const float place = Scaled(v[i], pre, mul, -middle, middle) + middle;
    digits[i] = static_cast<uint8_t>(static_cast<int32_t>(std::min(place, last)));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(QuantizeDigitsOf);
HWY_EXPORT(QuantizeSidesOf);
HWY_EXPORT(QuantizeNearestOf);

void FillDigitLevels(std::span<const float> levels, DigitLevels* table) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // An inverse beyond this is of no use: values in between go to the lower level.
  constexpr float kSmallestGap = 0x1p-120f;
  const float largest = std::max(std::fabs(levels.front()), std::fabs(levels.back()));
  table->count = levels.size();
  table->pre = largest < 0x1p-64f ? 0x1p85f : largest > 0x1p64f ? 0x1p-64f : 1.0f;
  const size_t filled =
      levels.size() <= DigitLevels::kFew ? DigitLevels::kFew : DigitLevels::kMost;
  for (size_t j = 0; j < filled; ++j) {
    table->level[j] = levels[std::min(j, levels.size() - 1)] * table->pre;
    table->bound[j] = j > 0 && j + 1 < levels.size() ? table->level[j] : kInfinity;
  }
  for (size_t j = 0; j < filled; ++j) {
    const float gap = j + 1 < filled ? table->level[j + 1] - table->level[j] : 0;
    table->inverse_width[j] = gap >= kSmallestGap ? 1 / gap : 0;
  }
}

void QuantizeDigits(const float* v, size_t n, RandomRun random, const DigitLevels& table,
                    float pre, float mul, uint8_t* digits) {
  HWY_DYNAMIC_DISPATCH(QuantizeDigitsOf)(v, n, random, table, pre, mul, digits);
}

void QuantizeSides(const float* v, size_t n, float threshold, uint8_t* digits) {
  HWY_DYNAMIC_DISPATCH(QuantizeSidesOf)(v, n, threshold, digits);
}

void QuantizeNearest(const float* v, size_t n, float range, int top, uint8_t* digits) {
  const Scaler scaler = MakeScaler(range, 0.5f * static_cast<float>(std::max(top, 2)));
  const float mul = top == 1 ? 0.5f * scaler.mul : scaler.mul;
  HWY_DYNAMIC_DISPATCH(QuantizeNearestOf)(v, n, scaler.pre, mul, top, digits);
}

}  // namespace elastiquant
#endif
