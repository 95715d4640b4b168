// The strategy of kIntegerSum: the workers agree on the scales of a bucket, the owner of a
// chunk adds its codes up as integers, and sends the sums on exactly. Nothing is quantised on
// the way back.
#pragma once

#include <memory>
#include <vector>

#include "elastiquant/codec/bucket/shared_scale.h"
#include "elastiquant/exchange/strategy.h"

namespace elastiquant {

class IntegerSum final : public Strategy {
 public:
  IntegerSum(ReduceShared& shared, BucketState& state);

  Status Announce() override;
  Status Encode() override;
  Status Reduce() override;
  Status Gather() override { return GatherChunks(); }

 protected:
  const Codec* bounded(Phase) const override { return among_.get(); }

 private:
  const SharedScale& codes() const { return *bucket().codec->shared_scale(); }
  std::span<float> ScalesOf(int chunk, std::span<float> scales) const {
    const Chunk part = scales_of_[static_cast<size_t>(chunk)];
    return scales.subspan(part.begin, part.size);
  }
  std::span<const float> Shared(int chunk) { return ScalesOf(chunk, shared_scales_); }

  Result<size_t> MeasureScales();
  Status GatherScales(Notice* notice);
  Result<size_t> EncodePart(int chunk, Chunk part, std::span<uint8_t> frame);
  Status AddCodes(std::span<float> sums, Notice* notice);
  Status ShareSums(std::span<const float> sums, const Notice& notice);

  const Chunk own_;
  std::vector<Chunk> scales_of_;                   // by chunk: its place in the scales
  std::vector<float> own_scales_, shared_scales_;  // measured here; the largest of any worker
  std::vector<float> their_scales_;                // those of another worker
  std::vector<uint8_t> frame_;                     // this step's frame of own_scales_
  size_t frame_room_ = 0;
  std::shared_ptr<const Codec> among_;  // SharedScale::Among
};

}  // namespace elastiquant
