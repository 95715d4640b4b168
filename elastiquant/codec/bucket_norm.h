// L_q norms of buckets as they travel: fp32, rounded up.
#pragma once

#include <cstdint>
#include <span>

namespace elastiquant {

// Stable numbers: they travel in frames.
enum class NormKind : uint8_t { kLinf = 0, kL1 = 1, kL2 = 2, kLq = 3 };

struct NormOrder {
  NormKind kind = NormKind::kLinf;
  double q = 0;  // kLq only: finite, >= 1
};

// q: 1, 2, kLq's, or infinity.
double OrderOf(NormOrder norm);

// The norm of `v`, rounded up to a float so that |v_i| / norm <= 1. NaN if some v_i is NaN or
// infinite; infinity if all are finite, but the norm is above fp32. Allocates nothing.
float BucketNorm(NormOrder order, std::span<const float> v);

// A norm in pieces, for buckets that are longer than what one thread takes at a time. Parts are
// combined in the order of the pieces. kLq needs the bucket's LargestPart first, as `scale`.
class NormParts {
 public:
  explicit NormParts(NormOrder order) : order_(order) {}

  // Whether Part() needs a scale, the combined LargestPart of the whole bucket.
  bool needs_scale() const { return order_.kind == NormKind::kLq; }

  static double LargestPart(std::span<const float> v);
  double Part(std::span<const float> v, double scale) const;
  double Combine(double a, double b) const;
  static double CombineLargest(double a, double b);
  float Finish(double combined, double scale) const;

 private:
  NormOrder order_;
};

}  // namespace elastiquant
