// How large the coordinates of gradients are relative to their bucket's norm: a mixture of
// normal distributions, each cut to [-1, 1], of which ALQ and AMQ take the magnitudes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "elastiquant/codec/bucket_norm.h"

namespace elastiquant {

// A bucket of normalised coordinates v_i / |v|.
struct BucketStatistics {
  double weight = 1;     // |v|^2: what its error counts for
  double mean = 0;       // of the normalised coordinates, with their signs
  double deviation = 1;  // above 0
};

// The statistics of the `most` buckets with the largest norms, in the order of the gradients.
// Buckets that are zero or have values that are not finite are left out.
std::vector<BucketStatistics> GatherStatistics(
    std::span<const std::span<const float>> gradients, NormOrder norm, size_t bucket,
    size_t most);

// Integrals over an interval of magnitudes r: of dF, r dF and r^2 dF.
struct Moments {
  double mass = 0, first = 0, second = 0;
  Moments operator-(const Moments& other) const {
    return {mass - other.mass, first - other.first, second - other.second};
  }
};

// F on [0, 1]. Made of at least one bucket; weights need not add up to 1.
class MagnitudeModel {
 public:
  explicit MagnitudeModel(std::span<const BucketStatistics> buckets);

  Moments Below(double r) const;  // over [0, r], 0 <= r <= 1
  // The r in [low, high] with F(r) = mass, or the end nearer to it.
  double Quantile(double mass, double low, double high) const;

 private:
  struct Component {
    double share;  // of the mixture, over the mass in [-1, 1]
    double mean, deviation;
  };
  std::vector<Component> components_;
};

}  // namespace elastiquant
