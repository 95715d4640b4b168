// The stages of a bucket of sparse messages that is reduced by the owners of its chunks.
// Nothing is rounded on the way: the mean has the bits that an all-gather leaves, and a codec
// remembers the same.
#include <algorithm>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/codec/sparse/sparse_part.h"
#include "elastiquant/exchange/reduce_stages.h"
#include "elastiquant/exchange/sparse_sum.h"

namespace elastiquant {

// As in an all-gather, but of the frame only its coordinates of a chunk go to the owner.
Status ReduceStages::EncodeScattered(size_t bucket) {
  BucketBuffers& buffers = buckets_[bucket];
  if (buffers.bucket.gradient.empty()) return {};
  EQ_ASSIGN_OR_RETURN(const auto frame, EncodeBucket(bucket));
  const Stopwatch watch;
  EQ_ASSIGN_OR_RETURN(const auto notice, ReadSkipNotice(frame));
  const std::span<float> decoded = std::span(decoded_).first(buffers.bucket.gradient.size());
  if (!notice) EQ_RETURN_IF_ERROR(DecodeFrame(frame, encode_work_, decoded));
  const auto part_of = [&](Chunk chunk, size_t room) -> Result<std::span<const uint8_t>> {
    const std::span<uint8_t> part = part_frame_.AtLeast(room);
    size_t size = kSkipNoticeBytes;
    if (notice) {
      WriteSkipNotice(*notice, part);
    } else {
      EQ_ASSIGN_OR_RETURN(
          size, EncodeSparsePart(frame, decoded.subspan(chunk.begin, chunk.size), encode_work_,
                                 part));
    }
    return std::span<const uint8_t>(part.first(size));
  };
  for (int n = 1; n < world_size_; ++n) {
    const int r = NthPeer(n);
    PeerBuffers& peer = Peer(bucket, r);
    if (peer.chunk.size == 0) continue;
    EQ_ASSIGN_OR_RETURN(const auto part, part_of(peer.chunk, peer.contribution_room));
    EQ_RETURN_IF_ERROR(contributed_.Send(r, Tag(bucket, kParts), part));
  }
  EQ_ASSIGN_OR_RETURN(const auto own, part_of(buffers.own, buffers.own_part_room));
  Keep(bucket, own);
  tally_.AddSeconds(&ReducerStats::encode_seconds, watch);
  return {};
}

// In the order of ranks, from 0, as in an all-gather.
Status ReduceStages::ReduceScattered(size_t bucket) {
  BucketBuffers& buffers = buckets_[bucket];
  if (buffers.own.size == 0) return {};
  const std::span<float> sum = std::span(sum_).first(buffers.own.size);
  std::fill(sum.begin(), sum.end(), 0.0f);
  std::optional<SkipNotice> notice;
  for (int r = 0; r < world_size_; ++r) {
    EQ_RETURN_IF_ERROR(r == rank_ ? AddFrame(bucket, r, buffers.kept.span(), sum, &notice)
                                  : AddPart(bucket, r, sum, &notice));
  }
  if (!notice) notice = FindInSum(bucket, sum, buffers.own.begin);
  return ShareSum(bucket, sum, notice);
}

Status ReduceStages::ShareSum(size_t bucket, std::span<const float> sum,
                              const std::optional<SkipNotice>& notice) {
  BucketBuffers& buffers = buckets_[bucket];
  const std::span<uint8_t> room = reduce_frame_.AtLeast(buffers.own_sum_room);
  size_t size = 0;
  if (notice) {
    size = WriteSkipNotice(*notice, room);
  } else {
    const Stopwatch watch;
    EQ_ASSIGN_OR_RETURN(size,
                        EncodeSparseSum(sum, KeyOf(bucket, kShare, rank_), reduce_work_, room));
    tally_.AddSeconds(&ReducerStats::encode_seconds, watch);
  }
  EQ_RETURN_IF_ERROR(SendToAll(shared_means_, bucket, kMeans, room.first(size)));
  if (notice) {
    Skip(bucket, *notice);
  } else {
    Divide(sum, buffers.Part(buffers.own));
  }
  return {};
}

// What the frames of all workers have cost, and what their parts and sums would have.
Status ReduceStages::WeighExchanges(size_t bucket,
                                    std::span<const std::span<const uint8_t>> frames,
                                    std::span<const float> sum) {
  const size_t n = sum.size();
  const auto peers = static_cast<uint64_t>(world_size_ - 1);
  std::vector<uint8_t> scratch(std::max(MaxSparsePartBytes(n), MaxSparseSumBytes(n)));
  std::vector<float> decoded(n);
  uint64_t all_gather = 0, scatter = 0;
  for (int owner = 0; owner < world_size_; ++owner) {
    const Chunk chunk = ChunkOf(n, world_size_, owner);
    if (chunk.size == 0) continue;
    EQ_ASSIGN_OR_RETURN(const size_t bytes,
                        EncodeSparseSum(sum.subspan(chunk.begin, chunk.size), StreamKey{},
                                        reduce_work_, scratch));
    scatter += peers * (bytes + kMessageHeaderBytes);
  }
  for (int r = 0; r < world_size_; ++r) {
    const auto frame = frames[static_cast<size_t>(r)];
    all_gather += peers * (frame.size() + kMessageHeaderBytes);
    EQ_RETURN_IF_ERROR(DecodeFrame(frame, reduce_work_, decoded));
    for (int owner = 0; owner < world_size_; ++owner) {
      const Chunk chunk = ChunkOf(n, world_size_, owner);
      if (owner == r || chunk.size == 0) continue;
      EQ_ASSIGN_OR_RETURN(
          const size_t bytes,
          EncodeSparsePart(frame, std::span(decoded).subspan(chunk.begin, chunk.size),
                           reduce_work_, scratch));
      scatter += bytes + kMessageHeaderBytes;
    }
  }
  buckets_[bucket].choice.Decide(all_gather, scatter);
  return {};
}

}  // namespace elastiquant
