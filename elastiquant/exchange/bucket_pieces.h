// Large buckets are cut into pieces, each of which is encoded, sent and decoded while the next
// one is: so the room that frames need does not grow with the largest tensor of a model.
#pragma once

#include <cstddef>
#include <vector>

#include "elastiquant/exchange/chunk.h"
#include "elastiquant/exchange/gradient_reducer.h"

namespace elastiquant {

// Where a piece of a bucket lies.
struct BucketPiece {
  size_t bucket = 0;
  Chunk part;
};

// The pieces of all buckets of a GradientReducer.
class BucketPieces {
 public:
  // The most elements of a piece of a bucket that may be cut.
  static constexpr size_t kMostElements = size_t{1} << 20;

  // Plans the pieces. A bucket stays whole if it has at most kMostElements elements, or if its
  // codec remembers, or takes all coordinates of a message together (which all codecs do whose
  // exchange is neither kTwoPhase nor kIntegerSum).
  explicit BucketPieces(const std::vector<GradientBucket>& buckets);

  // The pieces are in the order of the buckets. Those of bucket b are [first(b), end(b)), which
  // is at least one.
  size_t first(size_t bucket) const { return first_[bucket]; }
  size_t end(size_t bucket) const { return first_[bucket + 1]; }
  size_t count() const { return pieces_.size(); }
  const BucketPiece& operator[](size_t piece) const { return pieces_[piece]; }

  // Returns the pieces as buckets of their own. `buckets` must be those that were planned.
  std::vector<GradientBucket> Cut(const std::vector<GradientBucket>& buckets) const;

 private:
  std::vector<BucketPiece> pieces_;
  std::vector<size_t> first_;  // by bucket, and at the end the number of pieces
};

}  // namespace elastiquant
