// L_q norms of buckets as they travel, which is as fp32 and rounded up.
#pragma once

#include <cstdint>
#include <span>

namespace elastiquant {

// The numbers travel in frames, and so must never change.
enum class NormKind : uint8_t { kLinf = 0, kL1 = 1, kL2 = 2, kLq = 3 };

struct NormOrder {
  NormKind kind = NormKind::kLinf;
  double q = 0;  // used by kLq only: finite, and at least 1
};

// Returns the order: 1, 2, the q of kLq, or infinity.
double OrderOf(NormOrder norm);

// Returns the norm of `v`, rounded up to a float so that |v_i| / norm <= 1. It is NaN if some
// v_i is NaN or infinite, and infinity if all are finite but the norm is above fp32. Allocates
// nothing.
float BucketNorm(NormOrder order, std::span<const float> v);

// Computes a norm in pieces, for buckets that are longer than what one thread takes at a time.
// The parts are to be combined in the order of the pieces. kLq needs the LargestPart of the
// whole bucket first, as `scale`.
class NormParts {
 public:
  explicit NormParts(NormOrder order) : order_(order) {}

  // Whether Part() needs a scale, which is the combined LargestPart of the whole bucket.
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
