#include "elastiquant/kernels/norms.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "elastiquant/base/power.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/norms.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kSumLanes = 16;

inline uint32_t AbsBits(float v) { return std::bit_cast<uint32_t>(v) & 0x7FFFFFFFu; }

uint32_t AbsMaxOf(const float* HWY_RESTRICT v, size_t n) {
  const hn::ScalableTag<int32_t> d;
  const size_t lanes = hn::Lanes(d);
  const auto magnitude = hn::Set(d, 0x7FFFFFFF);
  const int32_t* bits = reinterpret_cast<const int32_t*>(v);
  auto m0 = hn::Zero(d), m1 = m0, m2 = m0, m3 = m0;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    m0 = hn::Max(m0, hn::And(hn::LoadU(d, bits + i), magnitude));
    m1 = hn::Max(m1, hn::And(hn::LoadU(d, bits + i + lanes), magnitude));
    m2 = hn::Max(m2, hn::And(hn::LoadU(d, bits + i + 2 * lanes), magnitude));
    m3 = hn::Max(m3, hn::And(hn::LoadU(d, bits + i + 3 * lanes), magnitude));
  }
  const auto top = hn::Max(hn::Max(m0, m1), hn::Max(m2, m3));
  uint32_t max = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(d, top)));
  for (; i < n; ++i) max = std::max(max, AbsBits(v[i]));
  return max;
}

// The same for all sums: what one coordinate of the inputs adds to its lane.
struct AbsTerm {
  double operator()(float v) const { return std::fabs(static_cast<double>(v)); }
  template <class V>
  V Vector(V v) const {
    return hn::Abs(v);
  }
};
struct SquareTerm {
  double operator()(float v) const { return static_cast<double>(v) * static_cast<double>(v); }
  template <class V>
  V Vector(V v) const {
    return hn::Mul(v, v);
  }
};
struct PlainTerm {
  double operator()(float v) const { return static_cast<double>(v); }
  template <class V>
  V Vector(V v) const {
    return v;
  }
};
struct AbsBelowTerm {
  double t;
  double operator()(float v) const {
    const double size = std::fabs(static_cast<double>(v));
    return size < t ? size : 0;
  }
  template <class V>
  V Vector(V v) const {
    const V size = hn::Abs(v);
    return hn::IfThenElseZero(hn::Lt(size, hn::Set(hn::DFromV<V>(), t)), size);
  }
};
struct AtLeastTerm {
  double t;
  double operator()(float v) const { return v >= t ? static_cast<double>(v) : 0; }
  template <class V>
  V Vector(V v) const {
    return hn::IfThenElseZero(hn::Ge(v, hn::Set(hn::DFromV<V>(), t)), v);
  }
};

struct ProductTerm {
  double operator()(float a, float b) const {
    return static_cast<double>(a) * static_cast<double>(b);
  }
  template <class V>
  V Vector(V a, V b) const {
    return hn::Mul(a, b);
  }
};
struct SquaredErrorTerm {
  double scale;
  double operator()(float a, float b) const {
    const double error = static_cast<double>(a) - scale * static_cast<double>(b);
    return error * error;
  }
  template <class V>
  V Vector(V a, V b) const {
    const V error = hn::Sub(a, hn::Mul(hn::Set(hn::DFromV<V>(), scale), b));
    return hn::Mul(error, error);
  }
};

#if HWY_TARGET == HWY_SCALAR
template <class Term, class... Inputs>
size_t SumBlocks(size_t n, Term term, double* sums, Inputs... v) {
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (size_t j = 0; j < kSumLanes; ++j) sums[j] += term(v[i + j]...);
  }
  return i;
}
#else
template <class Term, class... Inputs>
size_t SumBlocks(size_t n, Term term, double* sums, Inputs... v) {
  const hn::CappedTag<double, kSumLanes> d;
  const hn::Rebind<float, decltype(d)> df;
  constexpr size_t kLanes = hn::MaxLanes(d);
  constexpr size_t kVectors = kSumLanes / kLanes;
  hn::Vec<decltype(d)> acc[kVectors];
  for (size_t k = 0; k < kVectors; ++k) acc[k] = hn::Zero(d);
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (size_t k = 0; k < kVectors; ++k) {
      const size_t at = i + k * kLanes;
      acc[k] = hn::Add(acc[k], term.Vector(hn::PromoteTo(d, hn::LoadU(df, v + at))...));
    }
  }
  for (size_t k = 0; k < kVectors; ++k) hn::StoreU(acc[k], d, sums + k * kLanes);
  return i;
}
#endif

// `v` are arrays of n floats.
template <class Term, class... Inputs>
double SumOf(size_t n, Term term, Inputs... v) {
  double sums[kSumLanes] = {};
  const size_t done = SumBlocks(n, term, sums, v...);
  for (size_t i = done; i < n; ++i) sums[i - done] += term(v[i]...);
  for (size_t width = kSumLanes / 2; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  return sums[0];
}

double SumAbsOf(const float* v, size_t n) { return SumOf(n, AbsTerm(), v); }
double SumSquaresOf(const float* v, size_t n) { return SumOf(n, SquareTerm(), v); }
double PlainSumOf(const float* v, size_t n) { return SumOf(n, PlainTerm(), v); }
double SumAbsBelowOf(const float* v, size_t n, float t) {
  return SumOf(n, AbsBelowTerm{static_cast<double>(t)}, v);
}
double SumAtLeastOf(const float* v, size_t n, float t) {
  return SumOf(n, AtLeastTerm{static_cast<double>(t)}, v);
}
double DotOf(const float* a, const float* b, size_t n) { return SumOf(n, ProductTerm(), a, b); }
double SquaredDistanceOf(const float* a, const float* b, size_t n, double scale) {
  return SumOf(n, SquaredErrorTerm{scale}, a, b);
}

size_t CountAtLeastOf(const float* HWY_RESTRICT v, size_t n, float t) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto bound = hn::Set(d, t);
  size_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes)
    count += hn::CountTrue(d, hn::Ge(hn::LoadU(d, v + i), bound));
  for (; i < n; ++i) count += v[i] >= t ? 1 : 0;
  return count;
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(AbsMaxOf);
HWY_EXPORT(SumAbsOf);
HWY_EXPORT(SumSquaresOf);
HWY_EXPORT(PlainSumOf);
HWY_EXPORT(SumAbsBelowOf);
HWY_EXPORT(SumAtLeastOf);
HWY_EXPORT(CountAtLeastOf);
HWY_EXPORT(DotOf);
HWY_EXPORT(SquaredDistanceOf);

uint32_t AbsMaxBits(const float* v, size_t n) { return HWY_DYNAMIC_DISPATCH(AbsMaxOf)(v, n); }
double SumAbs(const float* v, size_t n) { return HWY_DYNAMIC_DISPATCH(SumAbsOf)(v, n); }
double SumSquares(const float* v, size_t n) { return HWY_DYNAMIC_DISPATCH(SumSquaresOf)(v, n); }
double Sum(const float* v, size_t n) { return HWY_DYNAMIC_DISPATCH(PlainSumOf)(v, n); }
double SumAbsBelow(const float* v, size_t n, float t) {
  return HWY_DYNAMIC_DISPATCH(SumAbsBelowOf)(v, n, t);
}
double SumAtLeast(const float* v, size_t n, float t) {
  return HWY_DYNAMIC_DISPATCH(SumAtLeastOf)(v, n, t);
}
size_t CountAtLeast(const float* v, size_t n, float t) {
  return HWY_DYNAMIC_DISPATCH(CountAtLeastOf)(v, n, t);
}

double Dot(std::span<const float> a, std::span<const float> b) {
  return HWY_DYNAMIC_DISPATCH(DotOf)(a.data(), b.data(), a.size());
}
double SquaredDistance(std::span<const float> a, std::span<const float> b, double scale) {
  return HWY_DYNAMIC_DISPATCH(SquaredDistanceOf)(a.data(), b.data(), a.size(), scale);
}

double SumPowers(const float* v, size_t n, double scale, double q) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i)
    sum += PortablePow(std::fabs(static_cast<double>(v[i])) * scale, q);
  return sum;
}

}  // namespace elastiquant
#endif
