// The strategy of kAllGather: every worker's frame of the whole bucket goes to all, who decode
// the frames and add them in the same order. Nothing is quantised twice.
#pragma once

#include "elastiquant/exchange/strategy.h"

namespace elastiquant {

class AllGather : public Strategy {
 public:
  AllGather(ReduceShared& shared, BucketState& state);

  Status Encode() override;
  Status Reduce() override;
  Status Gather() override { return {}; }

 protected:
  // Called with all workers' frames by rank, and with the sum of what they decode to. Not
  // called if a worker could not encode its gradient, or if the sum is not finite.
  virtual Status Look(std::span<const Frame> /*frames*/, std::span<const float> /*sum*/) {
    return {};
  }
};

}  // namespace elastiquant
