// Large buckets cut into pieces, each of which is encoded, sent and decoded while the next one
// is: the room that frames need does not grow with the largest tensor of a model.
#pragma once

#include <cstddef>
#include <vector>

#include "elastiquant/exchange/chunk.h"
#include "elastiquant/exchange/gradient_reducer.h"

namespace elastiquant {

// Of one bucket, where a piece lies.
struct BucketPiece {
  size_t bucket = 0;
  Chunk part;
};

class BucketPieces {
 public:
  static constexpr size_t kMostElements = size_t{1} << 20;

  // A bucket stays whole if it has no more elements than that, or if its codec takes all
  // coordinates of a message together (those that are not two-phase or integer-sum), or
  // remembers.
  explicit BucketPieces(const std::vector<GradientBucket>& buckets);

  // In order, those of bucket b are [first(b), first(b + 1)): one at least.
  size_t first(size_t bucket) const { return first_[bucket]; }
  size_t end(size_t bucket) const { return first_[bucket + 1]; }
  size_t count() const { return pieces_.size(); }
  const BucketPiece& operator[](size_t piece) const { return pieces_[piece]; }

  // The pieces as buckets of their own.
  std::vector<GradientBucket> Cut(const std::vector<GradientBucket>& buckets) const;

 private:
  std::vector<BucketPiece> pieces_;
  std::vector<size_t> first_;  // and the number of pieces behind the last bucket's
};

}  // namespace elastiquant
