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

}  // namespace

Metric::Metric(const BucketPlan& plan, std::span<const ParameterShape> shapes,
               std::vector<bool> lossy)
    : plan_(plan),
      shapes_(shapes),
      lossy_(std::move(lossy)),
      moments_(shapes.size()),
      units_(shapes.size()),
      names_(plan.buckets.size()) {}

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
  std::vector<double> sums(shapes_.size());
  double sum = 0, count = 0;  // of those that are usable
  for (size_t b = 0; b < names_.size(); ++b) {
    if (!lossy_[b]) continue;
    for (const auto& [p, offset] : plan_.buckets[b].slots) {
      const std::span<const float> v = moments_[p];
      if (v.empty()) continue;
      sums[p] = Sum(v.data(), v.size());
      const double mean = sums[p] / static_cast<double>(v.size());
      units_[p] = {IsUsable(mean), static_cast<float>(mean * kFloor)};
      if (!units_[p].by_value) continue;
      sum += sums[p];
      count += static_cast<double>(v.size());
    }
  }
  is_plain_ = count == 0;
  const double reference = is_plain_ ? 1 : sum / count;
  for (size_t b = 0; b < names_.size(); ++b) {
    uint64_t mix = std::bit_cast<uint64_t>(reference);
    for (const auto& [p, offset] : plan_.buckets[b].slots) {
      if (!units_[p].by_value) units_[p].floor = static_cast<float>(reference);
      mix = Mix64(mix ^ std::bit_cast<uint64_t>(sums[p]));
    }
    const bool converts = lossy_[b] && !is_plain_;
    names_[b] = converts ? static_cast<uint16_t>(1 + mix % 0xFFFF) : 0;
  }
}

void Metric::Enter(size_t b, std::span<float> values) const {
  if (names_[b] == 0) return;
  for (const auto& [p, offset] : plan_.buckets[b].slots) {
    const std::span<float> own = values.subspan(offset, shapes_[p].elements);
    if (units_[p].by_value) {
      Whiten(moments_[p].data(), own.size(), units_[p].floor, own.data());
    } else {
      for (float& v : own) v /= std::sqrt(units_[p].floor);
    }
  }
}

void Metric::Leave(size_t b, std::span<float> values) const {
  if (names_[b] == 0) return;
  for (const auto& [p, offset] : plan_.buckets[b].slots) {
    const std::span<float> own = values.subspan(offset, shapes_[p].elements);
    if (units_[p].by_value) {
      Unwhiten(moments_[p].data(), own.size(), units_[p].floor, own.data());
    } else {
      for (float& v : own) v *= std::sqrt(units_[p].floor);
    }
  }
}

}  // namespace elastiquant
