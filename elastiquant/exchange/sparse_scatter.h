// The strategy of kSparseScatter: the coordinates of a chunk go from every worker's sparse
// frame to the chunk's owner, who adds them and sends the sum on exactly. Nothing is rounded on
// the way: the mean has the bits that an all-gather leaves, and a codec remembers the same.
#pragma once

#include "elastiquant/exchange/strategy.h"

namespace elastiquant {

class SparseScatter final : public Strategy {
 public:
  SparseScatter(ReduceShared& shared, BucketState& state);

  Status Encode() override;
  Status Reduce() override;
  Status Gather() override;

 private:
  // Returns a frame of the coordinates of `whole` that lie in a chunk, or the notice if there
  // is one. `decoded` is what the whole frame decodes to.
  Result<Frame> PartOf(Frame whole, std::span<const float> decoded, const Notice& notice,
                       Chunk chunk);
  Status ShareSum(std::span<const float> sum, const Notice& notice);

  const Chunk own_;
};

}  // namespace elastiquant
