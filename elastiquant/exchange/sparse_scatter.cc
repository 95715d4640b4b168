#include "elastiquant/exchange/sparse_scatter.h"

#include <algorithm>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/codec/sparse/sparse_part.h"
#include "elastiquant/exchange/sparse_sum.h"

namespace elastiquant {

SparseScatter::SparseScatter(ReduceShared& shared, BucketState& state)
    : Strategy(shared, state), own_(ChunkOfRank(shared.rank)) {
  for (int r = 0; r < shared.world_size; ++r) {
    if (r == shared.rank) continue;
    const Chunk theirs = ChunkOfRank(r);
    if (own_.size > 0) room(r, Mail::kParts) = RoomFor(MaxSparsePartBytes(own_.size));
    if (theirs.size > 0) room(r, Mail::kMeans) = RoomFor(MaxSparseSumBytes(theirs.size));
  }
}

// As in an all-gather, but of the frame only its coordinates of a chunk go to the owner.
Status SparseScatter::Encode() {
  if (gradient().empty()) return {};
  ReduceShared::Stage& stage = shared_.encode;
  EQ_ASSIGN_OR_RETURN(const Frame whole, EncodeWhole());
  const Stopwatch watch;
  EQ_ASSIGN_OR_RETURN(const Notice notice, ReadSkipNotice(whole));
  const std::span<float> decoded = shared_.encode_decoded.AtLeast(gradient().size());
  if (!notice) EQ_RETURN_IF_ERROR(DecodeFrame(whole, stage.work, decoded));
  for (int n = 1; n < shared_.world_size; ++n) {
    const int r = NthPeer(n);
    const Chunk chunk = ChunkOfRank(r);
    if (chunk.size == 0) continue;
    EQ_ASSIGN_OR_RETURN(const Frame part, PartOf(whole, decoded, notice, chunk));
    EQ_RETURN_IF_ERROR(Send(stage.sends, r, Mail::kParts, part));
  }
  EQ_ASSIGN_OR_RETURN(const Frame own, PartOf(whole, decoded, notice, own_));
  Keep(own);
  shared_.tally.AddSeconds(&ReducerStats::encode_seconds, watch);
  return {};
}

Result<Strategy::Frame> SparseScatter::PartOf(Frame whole, std::span<const float> decoded,
                                              const Notice& notice, Chunk chunk) {
  const auto room = shared_.encode_part.AtLeast(RoomFor(MaxSparsePartBytes(chunk.size)));
  if (notice) return Frame(room.first(WriteSkipNotice(*notice, room)));
  EQ_ASSIGN_OR_RETURN(const size_t size,
                      EncodeSparsePart(whole, decoded.subspan(chunk.begin, chunk.size),
                                       shared_.encode.work, room));
  return Frame(room.first(size));
}

// In the order of ranks, from 0, as in an all-gather.
Status SparseScatter::Reduce() {
  if (own_.size == 0) return {};
  const std::span<float> sum = shared_.reduce_sum.AtLeast(own_.size);
  std::ranges::fill(sum, 0.0f);
  Notice notice;
  for (int r = 0; r < shared_.world_size; ++r) {
    Frame frame = state_.kept.span();
    if (r != shared_.rank) {
      EQ_ASSIGN_OR_RETURN(frame, Take(r, Mail::kParts));
    }
    EQ_RETURN_IF_ERROR(AddFrame(r, frame, sum, &notice));
  }
  if (!notice) notice = FindInSum(sum, own_.begin);
  return ShareSum(sum, notice);
}

Status SparseScatter::ShareSum(std::span<const float> sum, const Notice& notice) {
  ReduceShared::Stage& stage = shared_.reduce;
  const auto room = stage.frame.AtLeast(RoomFor(MaxSparseSumBytes(own_.size)));
  size_t size = 0;
  if (notice) {
    size = WriteSkipNotice(*notice, room);
  } else {
    const Stopwatch watch;
    EQ_ASSIGN_OR_RETURN(
        size, EncodeSparseSum(sum, KeyOf(Phase::kShare, shared_.rank), stage.work, room));
    shared_.tally.AddSeconds(&ReducerStats::encode_seconds, watch);
  }
  EQ_RETURN_IF_ERROR(SendToAll(stage.sends, Mail::kMeans, room.first(size)));
  if (notice) {
    Skip(*notice);
  } else {
    Divide(sum, Part(own_));
  }
  return {};
}

Status SparseScatter::Gather() {
  return GatherChunks([this](std::span<float> sum) { Divide(sum, sum); });
}

}  // namespace elastiquant
