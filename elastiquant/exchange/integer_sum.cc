#include "elastiquant/exchange/integer_sum.h"

#include <algorithm>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/exchange/fp32_codec.h"

namespace elastiquant {

IntegerSum::IntegerSum(ReduceShared& shared, BucketState& state)
    : Strategy(shared, state),
      own_(ChunkOfRank(shared.rank)),
      among_(codes().Among(shared.world_size)) {
  size_t count = 0;
  for (int j = 0; j < shared.world_size; ++j) {
    const size_t size = codes().ScaleCount(ChunkOfRank(j).size);
    scales_of_.push_back({count, size});
    count += size;
  }
  own_scales_.resize(count);
  shared_scales_.resize(count);
  their_scales_.resize(count);
  frame_room_ = RoomFor(Fp32Codec().MaxFrameBytes(count));
  for (int r = 0; r < shared.world_size; ++r) {
    if (r == shared.rank || gradient().empty()) continue;
    const Chunk theirs = ChunkOfRank(r);
    room(r, Mail::kScales) = frame_room_;
    if (own_.size > 0) room(r, Mail::kParts) = FrameRoom(own_.size, Phase::kContribute);
    if (theirs.size > 0) {
      room(r, Mail::kMeans) = RoomFor(codes().MaxMeanBytes(theirs.size, shared.world_size));
    }
  }
}

Status IntegerSum::Announce() {
  if (gradient().empty()) return {};
  const Stopwatch watch;
  frame_.resize(frame_room_);
  EQ_ASSIGN_OR_RETURN(const size_t size, MeasureScales());
  frame_.resize(size);
  shared_.tally.AddSeconds(&ReducerStats::encode_seconds, watch);
  return SendToAll(shared_.announce.sends, Mail::kScales, frame_);
}

// A frame of our scales, or of why there are none.
Result<size_t> IntegerSum::MeasureScales() {
  for (int j = 0; j < shared_.world_size; ++j) {
    const Chunk chunk = ChunkOfRank(j);
    const Status status =
        codes().Measure(Part(chunk), shared_.announce.work, ScalesOf(j, own_scales_));
    if (!status.ok()) return NoticeOf(status, Part(chunk), chunk.begin, frame_);
  }
  return Fp32Codec().Encode(own_scales_, StreamKey{}, shared_.announce.work, frame_);
}

// The largest of all workers' scales, unless one of them has sent a notice.
Status IntegerSum::GatherScales(Notice* notice) {
  std::ranges::fill(shared_scales_, 0.0f);
  for (int r = 0; r < shared_.world_size; ++r) {
    Frame frame = frame_;
    if (r != shared_.rank) {
      EQ_ASSIGN_OR_RETURN(frame, Take(r, Mail::kScales));
    }
    EQ_ASSIGN_OR_RETURN(const bool skips, IsNotice(r, frame, notice));
    if (skips) continue;
    const Status status = DecodeFrame(frame, shared_.encode.work, their_scales_);
    if (!status.ok()) return FrameError(r, status);
    std::ranges::transform(shared_scales_, their_scales_, shared_scales_.begin(),
                           [](float a, float b) { return std::max(a, b); });
  }
  return {};
}

// Our part of every chunk under the shared scales, of our own too. A notice travels on in their
// place: the others wait for messages of all phases.
Status IntegerSum::Encode() {
  if (gradient().empty()) return {};
  ReduceShared::Stage& stage = shared_.encode;
  Notice notice;
  EQ_RETURN_IF_ERROR(GatherScales(&notice));
  for (int n = 1; n <= shared_.world_size; ++n) {
    const int r = NthPeer(n);  // our own comes last
    const Chunk part = ChunkOfRank(r);
    if (part.size == 0) continue;
    const auto room = stage.frame.AtLeast(FrameRoom(part.size, Phase::kContribute));
    size_t size = kSkipNoticeBytes;
    if (notice) {
      WriteSkipNotice(*notice, room);
    } else {
      EQ_ASSIGN_OR_RETURN(size, EncodePart(r, part, room));
    }
    if (r == shared_.rank) {
      Keep(room.first(size));
    } else {
      EQ_RETURN_IF_ERROR(Send(stage.sends, r, Mail::kParts, room.first(size)));
    }
  }
  return {};
}

Result<size_t> IntegerSum::EncodePart(int chunk, Chunk part, std::span<uint8_t> frame) {
  ReduceShared::Stage& stage = shared_.encode;
  const std::span<const float> values = Part(part);
  const Stopwatch watch;
  EQ_ASSIGN_OR_RETURN(const size_t size,
                      codes().Encode(values, ScalesOf(chunk, own_scales_), Shared(chunk),
                                     KeyOf(Phase::kContribute, chunk), stage.work, frame));
  shared_.tally.AddSeconds(&ReducerStats::encode_seconds, watch);
  if (measuring()) {
    EQ_RETURN_IF_ERROR(Measure(part, Phase::kContribute, values, frame.first(size), stage));
  }
  return size;
}

Status IntegerSum::Reduce() {
  if (own_.size == 0) return {};
  const std::span<float> sums = shared_.reduce_sum.AtLeast(own_.size);
  Notice notice;
  EQ_RETURN_IF_ERROR(AddCodes(sums, &notice));
  return ShareSums(sums, notice);
}

// Integers, so that the order is of no account.
Status IntegerSum::AddCodes(std::span<float> sums, Notice* notice) {
  std::ranges::fill(sums, 0.0f);
  for (int r = 0; r < shared_.world_size; ++r) {
    Frame frame = state_.kept.span();
    if (r != shared_.rank) {
      EQ_ASSIGN_OR_RETURN(frame, Take(r, Mail::kParts));
    }
    EQ_ASSIGN_OR_RETURN(const bool skips, IsNotice(r, frame, notice));
    if (skips) continue;
    const Stopwatch watch;
    const Status status =
        codes().AddCodes(frame, Shared(shared_.rank), shared_.reduce.work, sums);
    shared_.tally.AddSeconds(&ReducerStats::decode_seconds, watch);
    if (!status.ok()) return FrameError(r, status);
  }
  return {};
}

// The frame decodes to the mean.
Status IntegerSum::ShareSums(std::span<const float> sums, const Notice& notice) {
  ReduceShared::Stage& stage = shared_.reduce;
  const auto room =
      stage.frame.AtLeast(RoomFor(codes().MaxMeanBytes(own_.size, shared_.world_size)));
  if (notice) {
    Skip(*notice);
    return SendToAll(stage.sends, Mail::kMeans, room.first(WriteSkipNotice(*notice, room)));
  }
  const Stopwatch watch;
  EQ_ASSIGN_OR_RETURN(const size_t size,
                      codes().EncodeMean(sums, shared_.world_size, Shared(shared_.rank),
                                         KeyOf(Phase::kShare, shared_.rank), stage.work, room));
  shared_.tally.AddSeconds(&ReducerStats::encode_seconds, watch);
  EQ_RETURN_IF_ERROR(SendToAll(stage.sends, Mail::kMeans, room.first(size)));
  const Stopwatch decoding;
  EQ_RETURN_IF_ERROR(DecodeFrame(room.first(size), stage.work, Part(own_)));
  shared_.tally.AddSeconds(&ReducerStats::decode_seconds, decoding);
  return {};
}

}  // namespace elastiquant
