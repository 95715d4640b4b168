// The strategy of kTwoPhase: a scatter-reduce and then an all-gather, both compressed. Every
// worker sends each owner its part of the owner's chunk, and the owner encodes the chunk's mean
// once more for all.
#pragma once

#include "elastiquant/exchange/strategy.h"

namespace elastiquant {

class TwoPhase final : public Strategy {
 public:
  TwoPhase(ReduceShared& shared, BucketState& state);

  Status Encode() override;
  Status Reduce() override;
  Status Gather() override { return GatherChunks(); }

  bool may_overlap() const override { return true; }
  Chunk owned_chunk() const override { return own_; }
  bool remembers() const override { return !is_lone(); }

 private:
  Status AddParts(std::span<float> sum, Notice* notice);
  Status ShareMean(std::span<const float> mean, Notice notice);

  const Chunk own_;
};

}  // namespace elastiquant
