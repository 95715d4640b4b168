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
      const bool usable = IsUsable(mean);
      units_[p] = {.kind = usable ? Kind::kByValue : Kind::kByParameter,
                   .floor = static_cast<float>(mean * kFloor)};
      if (!usable) continue;
      const auto elements = static_cast<double>(moments_[p].size());
      sum += mean * elements;
      count += elements;
    }
  }
  is_plain_ = count == 0;
  for (Unit& unit : units_) {
    if (is_plain_) unit = {};
    if (unit.kind == Kind::kByParameter) unit.floor = static_cast<float>(sum / count);
  }
}

void Metric::CopyIn(size_t parameter, std::span<const float> from, float* to) {
  Unit& unit = units_[parameter];
  switch (unit.kind) {
    case Kind::kOne:
      if (from.data() != to) std::ranges::copy(from, to);
      break;
    case Kind::kByParameter:
      std::ranges::transform(from, to,
                             [root = std::sqrt(unit.floor)](float g) { return g / root; });
      break;
    case Kind::kByValue:
      unit.bits_of_moments =
          Whiten(moments_[parameter].data(), from.size(), unit.floor, from.data(), to);
  }
}

void Metric::CopyOut(size_t parameter, std::span<const float> from, float* to) const {
  const Unit& unit = units_[parameter];
  switch (unit.kind) {
    case Kind::kOne:
      if (from.data() != to) std::ranges::copy(from, to);
      break;
    case Kind::kByParameter:
      std::ranges::transform(from, to,
                             [root = std::sqrt(unit.floor)](float g) { return g * root; });
      break;
    case Kind::kByValue:
      Unwhiten(moments_[parameter].data(), from.size(), unit.floor, from.data(), to);
  }
}

uint16_t Metric::Name(size_t bucket) const {
  if (!lossy_[bucket] || is_plain_) return 0;
  uint64_t mix = 0;
  for (const auto& [p, offset] : plan_.buckets[bucket].slots) {
    const Unit& unit = units_[p];
    mix = Mix64(mix ^ std::bit_cast<uint32_t>(unit.floor));
    if (unit.kind == Kind::kByValue) mix = Mix64(mix ^ unit.bits_of_moments);
  }
  return static_cast<uint16_t>(1 + mix % 0xFFFF);
}

template <typename Fn>
void Metric::ForEachParameter(size_t bucket, std::span<float> values, const Fn& fn) const {
  for (const auto& [p, offset] : plan_.buckets[bucket].slots) {
    fn(p, values.subspan(offset, shapes_[p].elements));
  }
}

uint16_t Metric::Enter(size_t bucket, std::span<float> values) {
  ForEachParameter(bucket, values,
                   [this](size_t p, std::span<float> own) { CopyIn(p, own, own.data()); });
  return Name(bucket);
}

void Metric::Leave(size_t bucket, std::span<float> values) const {
  ForEachParameter(bucket, values,
                   [this](size_t p, std::span<float> own) { CopyOut(p, own, own.data()); });
}

}  // namespace elastiquant
