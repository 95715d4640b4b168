#include "elastiquant/codec/elastic/magnitude_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

// Of the standard normal distribution.
double Density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double Distribution(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

// Integrals of the normal distribution over [a, b], signs kept.
Moments NormalMoments(double mean, double deviation, double a, double b) {
  const double x = (a - mean) / deviation, y = (b - mean) / deviation;
  const double at_a = Density(x) / deviation, at_b = Density(y) / deviation;
  const double variance = deviation * deviation;
  const double mass = Distribution(y) - Distribution(x);
  return {mass, mean * mass + variance * (at_a - at_b),
          (mean * mean + variance) * mass + variance * ((a + mean) * at_a - (b + mean) * at_b)};
}

}  // namespace

std::vector<BucketStatistics> GatherStatistics(
    std::span<const std::span<const float>> gradients, NormOrder norm, size_t bucket,
    size_t most) {
  std::vector<BucketStatistics> all;
  for (const std::span<const float> gradient : gradients) {
    const size_t length = bucket == 0 ? std::max<size_t>(gradient.size(), 1) : bucket;
    for (size_t begin = 0; begin < gradient.size(); begin += length) {
      const auto v = gradient.subspan(begin, std::min(length, gradient.size() - begin));
      const double size = BucketNorm(norm, v);
      if (!(size > 0) || !std::isfinite(size)) continue;
      const double n = static_cast<double>(v.size());
      const double mean = Sum(v.data(), v.size()) / n / size;
      const double square = SumSquares(v.data(), v.size()) / n / size / size;
      // Values that are all the same still get a distribution.
      const double variance = std::max(square - mean * mean, 1e-8 * square);
      all.push_back({size * size, mean, std::sqrt(variance)});
    }
  }
  if (all.size() <= most) return all;
  std::vector<double> weights(all.size());
  std::ranges::transform(all, weights.begin(), &BucketStatistics::weight);
  std::ranges::nth_element(weights, weights.begin() + static_cast<long>(most) - 1,
                           std::greater<>());
  const double least = weights[most - 1];
  std::erase_if(all, [least](const BucketStatistics& b) { return b.weight < least; });
  all.resize(std::min(all.size(), most));
  return all;
}

MagnitudeModel::MagnitudeModel(std::span<const BucketStatistics> buckets) {
  double total = 0;
  for (const BucketStatistics& b : buckets) total += b.weight;
  for (const BucketStatistics& b : buckets) {
    const double mass = NormalMoments(b.mean, b.deviation, -1, 1).mass;
    components_.push_back({b.weight / total / mass, b.mean, b.deviation});
  }
}

Moments MagnitudeModel::Below(double r) const {
  Moments sum;
  for (const Component& c : components_) {
    const Moments positive = NormalMoments(c.mean, c.deviation, 0, r);
    const Moments negative = NormalMoments(c.mean, c.deviation, -r, 0);
    sum.mass += c.share * (positive.mass + negative.mass);
    sum.first += c.share * (positive.first - negative.first);
    sum.second += c.share * (positive.second + negative.second);
  }
  return sum;
}

double MagnitudeModel::Quantile(double mass, double low, double high) const {
  double at_low = Below(low).mass - mass, at_high = Below(high).mass - mass;
  if (at_low >= 0) return low;
  if (at_high <= 0) return high;
  // The Illinois method.
  for (int step = 0; step < 100 && high - low > 1e-9 * high; ++step) {
    const double r =
        step < 30 ? low - (high - low) * at_low / (at_high - at_low) : (low + high) / 2;
    const double at = Below(r).mass - mass;
    if (std::abs(at) < 1e-13) return r;
    if (at < 0) {
      low = r;
      at_low = at;
      at_high /= 2;
    } else {
      high = r;
      at_high = at;
      at_low /= 2;
    }
  }
  return (low + high) / 2;
}

}  // namespace elastiquant
