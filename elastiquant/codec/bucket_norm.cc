#include "elastiquant/codec/bucket_norm.h"

#include <bit>
#include <cmath>
#include <limits>

#include "elastiquant/base/power.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float RoundUp(double norm) {
  if (norm > static_cast<double>(std::numeric_limits<float>::max())) return kInfinity;
  float rounded = static_cast<float>(norm);
  if (static_cast<double>(rounded) < norm) rounded = std::nextafter(rounded, kInfinity);
  return rounded;
}

}  // namespace

// NaN stands for any value that is not finite, as it does in the sums.
double NormParts::LargestPart(std::span<const float> v) {
  const uint32_t bits = AbsMaxBits(v.data(), v.size());
  if (bits >= kNonFiniteBits) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(std::bit_cast<float>(bits));
}

double NormParts::CombineLargest(double a, double b) { return std::isnan(a) || a > b ? a : b; }

double NormParts::Part(std::span<const float> v, double scale) const {
  switch (order_.kind) {
    case NormKind::kL1:
      return SumAbs(v.data(), v.size());
    case NormKind::kL2:
      return SumSquares(v.data(), v.size());
    case NormKind::kLq:
      // The zero and the non-finite bucket are known by their scale.
      return scale > 0 ? SumPowers(v.data(), v.size(), 1 / scale, order_.q) : 0;
    default:
      return LargestPart(v);
  }
}

double NormParts::Combine(double a, double b) const {
  return order_.kind == NormKind::kLinf ? CombineLargest(a, b) : a + b;
}

float NormParts::Finish(double combined, double scale) const {
  if (!std::isfinite(combined)) return std::numeric_limits<float>::quiet_NaN();
  switch (order_.kind) {
    case NormKind::kL1:
      return RoundUp(combined);
    case NormKind::kL2:
      return RoundUp(std::sqrt(combined));
    case NormKind::kLq:
      return scale == 0 || std::isnan(scale)
                 ? static_cast<float>(scale)
                 : RoundUp(scale * PortablePow(combined, 1 / order_.q));
    default:
      return static_cast<float>(combined);
  }
}

double OrderOf(NormOrder norm) {
  switch (norm.kind) {
    case NormKind::kL1:
      return 1;
    case NormKind::kL2:
      return 2;
    case NormKind::kLq:
      return norm.q;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

float BucketNorm(NormOrder order, std::span<const float> v) {
  const NormParts parts(order);
  const double scale = parts.needs_scale() ? NormParts::LargestPart(v) : 0;
  return parts.Finish(parts.Part(v, scale), scale);
}

}  // namespace elastiquant
