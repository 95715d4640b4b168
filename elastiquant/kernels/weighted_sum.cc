#include "elastiquant/kernels/weighted_sum.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/weighted_sum.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void WeightedSumOf(std::span<const WeightedVector> inputs, double scale, size_t n, float* out) {
  size_t i = 0;
  // Highway's emulation makes the largest float of a sum beyond it, and no infinity.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  constexpr size_t kVectors = 4;  // whose additions do not wait for one another
  const size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, scale);
  for (; i + kVectors * lanes <= n; i += kVectors * lanes) {
    hn::Vec<decltype(d)> sums[kVectors];
    for (auto& sum : sums) sum = hn::Zero(d);
    for (const WeightedVector& input : inputs) {
      const auto weight = hn::Set(d, input.weight);
      for (size_t k = 0; k < kVectors; ++k) {
        const auto v = hn::PromoteTo(d, hn::LoadU(df, input.values + i + k * lanes));
        sums[k] = hn::Add(sums[k], hn::Mul(weight, v));
      }
    }
    for (size_t k = 0; k < kVectors; ++k) {
      hn::StoreU(hn::DemoteTo(df, hn::Mul(factor, sums[k])), df, out + i + k * lanes);
    }
  }
#endif
  for (; i < n; ++i) {
    double sum = 0;
    for (const WeightedVector& input : inputs) {
      sum += input.weight * static_cast<double>(input.values[i]);
    }
    out[i] = static_cast<float>(scale * sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(WeightedSumOf);

void WeightedSum(std::span<const WeightedVector> inputs, double scale, size_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(WeightedSumOf)(inputs, scale, n, out);
}

}  // namespace elastiquant
#endif
