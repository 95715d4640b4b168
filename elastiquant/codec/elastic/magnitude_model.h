// Models how large the coordinates of gradients are relative to their bucket's norm, by a
// mixture of normal distributions, each cut to [-1, 1]. ALQ and AMQ take the magnitudes of
// that.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "elastiquant/codec/bucket_norm.h"
#include "elastiquant/codec/elastic/moments.h"

namespace elastiquant {

// The statistics of a bucket of normalised coordinates v_i / |v|.
struct BucketStatistics {
  double weight = 1;     // |v|^2, by which its error counts
  double mean = 0;       // of the normalised coordinates, with their signs
  double deviation = 1;  // of the same; above 0
};

// Returns the statistics of the `most` buckets with the largest norms, in the order of the
// gradients. Buckets that are zero or have values that are not finite are left out.
std::vector<BucketStatistics> GatherStatistics(
    std::span<const std::span<const float>> gradients, NormOrder norm, size_t bucket,
    size_t most);

// The distribution function F of the magnitudes on [0, 1]. It is made of at least one bucket,
// whose weights need not add up to 1.
class MagnitudeModel {
 public:
  explicit MagnitudeModel(std::span<const BucketStatistics> buckets);

  // Returns the integrals over [0, r], 0 <= r <= 1.
  Moments Below(double r) const;
  // Returns the r in [low, high] with F(r) = mass, or the end that is nearer to it.
  double Quantile(double mass, double low, double high) const;

 private:
  struct Component {
    double share;  // its share of the mixture, over its mass in [-1, 1]
    double mean, deviation;
  };
  std::vector<Component> components_;
};

}  // namespace elastiquant
