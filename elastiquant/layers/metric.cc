#include "elastiquant/layers/metric.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/whiten.h"

namespace elastiquant {
namespace {

// Whether a mean of second moments gives a floor that floats can hold.
bool IsUsable(double mean) {
  return mean * Metric::kFloor >= std::numeric_limits<float>::min() &&
         mean <= std::numeric_limits<float>::max();
}

// A mean that is the same on all workers and takes little time to find: that of long vectors
// over 256 values of each 4096.
double SampledMean(std::span<const float> v) {
  constexpr size_t kShort = 8192, kTaken = 256, kOf = 4096;
  if (v.empty()) return 0;
  if (v.size() <= kShort) return Sum(v.data(), v.size()) / static_cast<double>(v.size());
  double sum = 0;
  size_t groups = 0;
  for (size_t i = 0; i + kTaken <= v.size(); i += kOf, ++groups) sum += Sum(&v[i], kTaken);
  return sum / static_cast<double>(kTaken * groups);
}

}  // namespace

Metric::Metric(const BucketPlan& plan, std::span<const ParameterShape> shapes,
               std::vector<bool> lossy)
    : plan_(plan),
      shapes_(shapes),
      lossy_(std::move(lossy)),
      moments_(shapes.size()),
      units_(shapes.size()) {}

Status Metric::Set(SecondMoments moments) {
  if (moments.empty()) moments.resize(shapes_.size());
  if (moments.size() != shapes_.size()) {
    return InvalidArgument("there are second moments of " + std::to_string(moments.size()) +
                           " parameters, not of " + std::to_string(shapes_.size()));
  }
  for (size_t p = 0; p < moments.size(); ++p) {
    if (moments[p].empty() || moments[p].size() == shapes_[p].elements) continue;
    return InvalidArgument("there are " + std::to_string(moments[p].size()) +
                           " second moments of " + shapes_[p].name + ", which has " +
                           std::to_string(shapes_[p].elements) + " values");
  }
  moments_ = std::move(moments);
  units_.assign(shapes_.size(), {});
  return {};
}

void Metric::BeginStep() {
  double sum = 0, count = 0;  // of those that are usable
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    if (!lossy_[b]) continue;
    for (const auto& [p, offset] : plan_.buckets[b].slots) {
      const double mean = SampledMean(moments_[p]);
      units_[p] = {IsUsable(mean), static_cast<float>(mean * kFloor)};
      if (!units_[p].by_value) continue;
      const auto elements = static_cast<double>(moments_[p].size());
      sum += mean * elements;
      count += elements;
    }
  }
  is_plain_ = count == 0;
  for (Unit& unit : units_) {
    if (!unit.by_value && !is_plain_) unit.floor = static_cast<float>(sum / count);
  }
}

template <typename Fn>
void Metric::ForEachParameter(size_t bucket, std::span<float> values, const Fn& fn) const {
  for (const auto& [p, offset] : plan_.buckets[bucket].slots) {
    fn(moments_[p].data(), units_[p], values.subspan(offset, shapes_[p].elements));
  }
}

uint16_t Metric::Enter(size_t bucket, std::span<float> values) const {
  if (!converts(bucket)) return 0;
  uint64_t mix = 0;
  ForEachParameter(bucket, values, [&](const float* v, Unit unit, std::span<float> own) {
    mix = Mix64(mix ^ std::bit_cast<uint32_t>(unit.floor));
    if (unit.by_value) {
      mix = Mix64(mix ^ Whiten(v, own.size(), unit.floor, own.data()));
    } else {
      for (float& value : own) value /= std::sqrt(unit.floor);
    }
  });
  return static_cast<uint16_t>(1 + mix % 0xFFFF);
}

void Metric::Leave(size_t bucket, std::span<float> values) const {
  if (!converts(bucket)) return;
  ForEachParameter(bucket, values, [](const float* v, Unit unit, std::span<float> own) {
    if (unit.by_value) {
      Unwhiten(v, own.size(), unit.floor, own.data());
    } else {
      for (float& value : own) value *= std::sqrt(unit.floor);
    }
  });
}

}  // namespace elastiquant
