#include "elastiquant/kernels/low_rank/low_rank.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/low_rank/low_rank.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kDotLanes = 16;
constexpr uint32_t kMagnitude = 0x7FFFFFFFu;
constexpr uint32_t kExponent = 0x7F800000u;

double AddLanes(double* sums) {
  for (size_t width = kDotLanes / 2; width > 0; width /= 2) {
    for (size_t j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  return sums[0];
}

#if HWY_TARGET == HWY_SCALAR
template <size_t kRank>
size_t DotBlocks(const float* v, const FactorView& q, size_t k, size_t n,
                 double (*sums)[kDotLanes]) {
  size_t i = 0;
  for (; i + kDotLanes <= n; i += kDotLanes) {
    for (size_t r = 0; r < kRank; ++r) {
      const float* const other = q.data + (k + r) * q.stride + i;
      for (size_t j = 0; j < kDotLanes; ++j) {
        sums[r][j] += static_cast<double>(v[i + j]) * static_cast<double>(other[j]);
      }
    }
  }
  return i;
}
#else
template <size_t kRank>
size_t DotBlocks(const float* HWY_RESTRICT v, const FactorView& q, size_t k, size_t n,
                 double (*sums)[kDotLanes]) {
  const hn::CappedTag<double, kDotLanes> d;
  const hn::Rebind<float, decltype(d)> df;
  constexpr size_t kLanes = hn::MaxLanes(d);
  constexpr size_t kVectors = kDotLanes / kLanes;
  hn::Vec<decltype(d)> acc[kRank][kVectors];
  const float* others[kRank];
  for (size_t r = 0; r < kRank; ++r) {
    others[r] = q.data + (k + r) * q.stride;
    for (size_t a = 0; a < kVectors; ++a) acc[r][a] = hn::Zero(d);
  }
  size_t i = 0;
  for (; i + kDotLanes <= n; i += kDotLanes) {
    for (size_t a = 0; a < kVectors; ++a) {
      const size_t at = i + a * kLanes;
      const auto x = hn::PromoteTo(d, hn::LoadU(df, v + at));
      for (size_t r = 0; r < kRank; ++r) {
        // The product is exact, so that it does not matter whether it is fused with the sum.
        const auto y = hn::PromoteTo(d, hn::LoadU(df, others[r] + at));
        acc[r][a] = hn::MulAdd(x, y, acc[r][a]);
      }
    }
  }
  for (size_t r = 0; r < kRank; ++r) {
    for (size_t a = 0; a < kVectors; ++a) hn::StoreU(acc[r][a], d, sums[r] + a * kLanes);
  }
  return i;
}
#endif

template <size_t kRank>
void DotRow(const float* v, size_t n, const FactorView& q, size_t k, double* p,
            size_t p_stride) {
  double sums[kRank][kDotLanes] = {};
  const size_t done = DotBlocks<kRank>(v, q, k, n, sums);
  for (size_t r = 0; r < kRank; ++r) {
    const float* const other = q.data + (k + r) * q.stride;
    for (size_t i = done; i < n; ++i) {
      sums[r][i - done] += static_cast<double>(v[i]) * static_cast<double>(other[i]);
    }
    p[(k + r) * p_stride] = AddLanes(sums[r]);
  }
}

void DotRowsOf(const float* m, size_t rows, size_t n, const FactorView& q, double* p,
               size_t p_stride) {
  for (size_t i = 0; i < rows; ++i) {
    size_t k = 0;
    for (; k + 2 <= q.rank; k += 2) DotRow<2>(m + i * n, n, q, k, p + i, p_stride);
    if (k < q.rank) DotRow<1>(m + i * n, n, q, k, p + i, p_stride);
  }
}

// kRows rows at once, one after the other in each sum: fewer passes over the sums.
template <size_t kRows, class D, class DF>
void AddVectors(D d, DF df, const float* HWY_RESTRICT m, size_t m_stride, size_t n,
                const float* p, double* HWY_RESTRICT sums) {
  const size_t lanes = hn::Lanes(d);
  size_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    auto sum = hn::LoadU(d, sums + j);
    for (size_t r = 0; r < kRows; ++r) {
      const auto x = hn::PromoteTo(d, hn::LoadU(df, m + r * m_stride + j));
      sum = hn::MulAdd(x, hn::Set(d, static_cast<double>(p[r])), sum);
    }
    hn::StoreU(sum, d, sums + j);
  }
  for (; j < n; ++j) {
    for (size_t r = 0; r < kRows; ++r) {
      sums[j] += static_cast<double>(m[r * m_stride + j]) * static_cast<double>(p[r]);
    }
  }
}

void AddScaledRowsOf(const float* m, size_t m_stride, size_t rows, size_t n,
                     const FactorView& p, double* sums, size_t sums_stride) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  size_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    for (size_t k = 0; k < p.rank; ++k) {
      AddVectors<4>(d, df, m + i * m_stride, m_stride, n, p.data + k * p.stride + i,
                    sums + k * sums_stride);
    }
  }
  for (; i < rows; ++i) {
    for (size_t k = 0; k < p.rank; ++k) {
      AddVectors<1>(d, df, m + i * m_stride, m_stride, n, p.data + k * p.stride + i,
                    sums + k * sums_stride);
    }
  }
}

struct StoreSink {
  template <class D, class V>
  void Vector(D d, V value, float* out) const {
    hn::StoreU(value, d, out);
  }
  void One(float value, float* out) const { *out = value; }
};
struct AddSink {
  float weight;
  template <class D, class V>
  void Vector(D d, V value, float* out) const {
    hn::StoreU(hn::Add(hn::LoadU(d, out), hn::Mul(hn::Set(d, weight), value)), d, out);
  }
  void One(float value, float* out) const {
    const float product = weight * value;
    *out = *out + product;
  }
};

template <class Sink>
bool CombineRow(const FactorView& p, size_t i, const FactorView& q, size_t n, const Sink& sink,
                float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(di);
  size_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    auto value = hn::Mul(hn::Set(d, p.data[i]), hn::LoadU(d, q.data + j));
    for (size_t k = 1; k < q.rank; ++k) {
      const auto x = hn::Set(d, p.data[k * p.stride + i]);
      value = hn::Add(value, hn::Mul(x, hn::LoadU(d, q.data + k * q.stride + j)));
    }
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(value)));
    sink.Vector(d, value, out + j);
  }
  auto most = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
  for (; j < n; ++j) {
    float value = p.data[i] * q.data[j];
    for (size_t k = 1; k < q.rank; ++k) {
      const float product = p.data[k * p.stride + i] * q.data[k * q.stride + j];
      value = value + product;
    }
    most = std::max(most, std::bit_cast<uint32_t>(value) & kMagnitude);
    sink.One(value, out + j);
  }
  return most < kExponent;
}

template <class Sink>
bool CombineRows(const FactorView& p, const FactorView& q, size_t rows, size_t n,
                 const Sink& sink, float* out) {
  bool finite = true;
  for (size_t i = 0; i < rows; ++i) finite &= CombineRow(p, i, q, n, sink, out + i * n);
  return finite;
}
bool CombineOf(const FactorView& p, const FactorView& q, size_t rows, size_t n, float* out) {
  return CombineRows(p, q, rows, n, StoreSink{}, out);
}
bool CombineAddOf(const FactorView& p, const FactorView& q, size_t rows, size_t n, float weight,
                  float* out) {
  return CombineRows(p, q, rows, n, AddSink{weight}, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(DotRowsOf);
HWY_EXPORT(AddScaledRowsOf);
HWY_EXPORT(CombineOf);
HWY_EXPORT(CombineAddOf);

void DotRows(const float* m, size_t rows, size_t n, const FactorView& q, double* p,
             size_t p_stride) {
  HWY_DYNAMIC_DISPATCH(DotRowsOf)(m, rows, n, q, p, p_stride);
}
void AddScaledRows(const float* m, size_t m_stride, size_t rows, size_t n, const FactorView& p,
                   double* sums, size_t sums_stride) {
  HWY_DYNAMIC_DISPATCH(AddScaledRowsOf)(m, m_stride, rows, n, p, sums, sums_stride);
}
bool CombineFactors(const FactorView& p, const FactorView& q, size_t rows, size_t n,
                    float* out) {
  return HWY_DYNAMIC_DISPATCH(CombineOf)(p, q, rows, n, out);
}
bool CombineAddFactors(const FactorView& p, const FactorView& q, size_t rows, size_t n,
                       float weight, float* out) {
  return HWY_DYNAMIC_DISPATCH(CombineAddOf)(p, q, rows, n, weight, out);
}

}  // namespace elastiquant
#endif
