#include "elastiquant/theory/exact_variance.h"

#include <algorithm>
#include <cmath>

#include "elastiquant/theory/level_search.h"

namespace elastiquant::theory {
namespace {

double BucketVariance(const ElasticFormat& format, std::span<const float> bucket) {
  const double norm = BucketNorm(format.norm, bucket);
  if (norm == 0) return 0;
  if (format.rounding == Rounding::kDither) {
    const double step = norm / (InnerLevels(format.bits) + 1);
    return static_cast<double>(bucket.size()) * step * step / 12;
  }
  double variance = 0;
  for (const float value : bucket) {
    const double r = std::min(1.0, std::abs(static_cast<double>(value)) / norm);
    variance += RoundingVariance(IntervalOf(format.levels, r), r);
  }
  return variance * norm * norm;
}

}  // namespace

double ExactNmse(const ElasticFormat& format, std::span<const float> v) {
  const size_t bucket = format.bucket == 0 ? v.size() : format.bucket;
  double variance = 0, size = 0;
  for (size_t begin = 0; begin < v.size(); begin += bucket) {
    variance += BucketVariance(format, v.subspan(begin, std::min(bucket, v.size() - begin)));
  }
  for (const float value : v) size += static_cast<double>(value) * value;
  return size == 0 ? 0 : variance / size;
}

}  // namespace elastiquant::theory
