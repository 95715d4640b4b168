#include "elastiquant/exchange/two_phase.h"

#include <algorithm>

#include "elastiquant/base/stopwatch.h"

namespace elastiquant {

TwoPhase::TwoPhase(ReduceShared& shared, BucketState& state)
    : Strategy(shared, state), own_(ChunkOfRank(shared.rank)) {
  for (int r = 0; r < shared.world_size; ++r) {
    if (r == shared.rank) continue;
    const Chunk theirs = ChunkOfRank(r);
    if (own_.size > 0) room(r, Mail::kParts) = FrameRoom(own_.size, Phase::kContribute);
    if (theirs.size > 0) room(r, Mail::kMeans) = FrameRoom(theirs.size, Phase::kShare);
  }
}

Status TwoPhase::Encode() {
  ReduceShared::Stage& stage = shared_.encode;
  for (int n = 1; n < shared_.world_size; ++n) {
    const int r = NthPeer(n);
    const Chunk part = ChunkOfRank(r);
    if (part.size == 0) continue;
    const std::span<const float> values = Part(part);
    const auto room = stage.frame.AtLeast(FrameRoom(part.size, Phase::kContribute));
    EQ_ASSIGN_OR_RETURN(const size_t size,
                        EncodeOrNotice(stage.work, values, part, Phase::kContribute, r, room));
    const Frame frame = room.first(size);
    // Before it is sent: afterwards its owner's mean may overwrite the values.
    if (measuring()) {
      EQ_RETURN_IF_ERROR(Measure(part, Phase::kContribute, values, frame, stage));
    }
    EQ_RETURN_IF_ERROR(Send(stage.sends, r, Mail::kParts, frame));
  }
  return {};
}

Status TwoPhase::Reduce() {
  if (own_.size == 0) return {};
  Notice notice =
      FindNonFinite(Part(own_), own_.begin, static_cast<uint32_t>(state_.index), own_number());
  if (is_lone()) {
    if (notice) Skip(*notice);
    return {};
  }
  const std::span<float> sum = shared_.reduce_sum.AtLeast(own_.size);
  EQ_RETURN_IF_ERROR(AddParts(sum, &notice));
  return ShareMean(sum, notice);
}

// In the order of ranks, whatever the order of arrival: sums of floats depend on it.
Status TwoPhase::AddParts(std::span<float> sum, Notice* notice) {
  const std::span<const float> own = Part(own_);
  std::ranges::fill(sum, 0.0f);
  for (int r = 0; r < shared_.world_size; ++r) {
    if (r == shared_.rank) {
      const float w = weight(r);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += w * own[i];
    } else {
      EQ_ASSIGN_OR_RETURN(const Frame frame, Take(r, Mail::kParts));
      EQ_RETURN_IF_ERROR(AddFrame(r, frame, sum, notice));
    }
  }
  Divide(sum, sum);
  return {};
}

// What we keep of the mean is what the others decode.
Status TwoPhase::ShareMean(std::span<const float> mean, Notice notice) {
  ReduceShared::Stage& stage = shared_.reduce;
  const auto room = stage.frame.AtLeast(FrameRoom(own_.size, Phase::kShare));
  size_t size = 0;
  if (notice) {
    size = WriteSkipNotice(*notice, room);
  } else {
    EQ_ASSIGN_OR_RETURN(
        size, EncodeOrNotice(stage.work, mean, own_, Phase::kShare, shared_.rank, room));
  }
  const Frame frame = room.first(size);
  EQ_RETURN_IF_ERROR(SendToAll(stage.sends, Mail::kMeans, frame));
  EQ_ASSIGN_OR_RETURN(notice, ReadSkipNotice(frame));
  if (notice) {
    Skip(*notice);
    return {};
  }
  if (measuring() && shared_.options.on_measured) {
    EQ_RETURN_IF_ERROR(Measure(own_, Phase::kShare, mean, frame, stage));
  }
  const Stopwatch watch;
  EQ_RETURN_IF_ERROR(DecodeFrame(frame, stage.work, Part(own_)));
  shared_.tally.AddSeconds(&ReducerStats::decode_seconds, watch);
  return {};
}

}  // namespace elastiquant
