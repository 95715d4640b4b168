// The stages of a bucket whose codes are added up as integers, under scales that all workers
// share. Nothing is quantised on the way back.
#include <algorithm>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/codec/bucket/shared_scale.h"
#include "elastiquant/exchange/fp32_codec.h"
#include "elastiquant/exchange/reduce_stages.h"

namespace elastiquant {

Status ReduceStages::Announce(size_t bucket) {
  BucketBuffers& buffers = buckets_[bucket];
  if (!adds_codes(bucket) || buffers.bucket.gradient.empty()) return {};
  const Stopwatch watch;
  buffers.scales.frame.resize(buffers.scales.room);
  EQ_ASSIGN_OR_RETURN(const size_t size, MeasureScales(bucket));
  buffers.scales.frame.resize(size);
  tally_.AddSeconds(&ReducerStats::encode_seconds, watch);
  return SendToAll(announced_, bucket, kScales, buffers.scales.frame);
}

// A frame of our scales, or of why there are none.
Result<size_t> ReduceStages::MeasureScales(size_t bucket) {
  BucketBuffers& buffers = buckets_[bucket];
  BucketScales& scales = buffers.scales;
  for (int j = 0; j < world_size_; ++j) {
    const Chunk chunk = ChunkOf(buffers.bucket.gradient.size(), world_size_, j);
    const Status status = buffers.bucket.codec->shared_scale()->Measure(
        buffers.Part(chunk), announce_work_, scales.Own(j));
    if (status.ok()) continue;
    return NoticeOf(status, bucket, buffers.Part(chunk), chunk.begin, scales.frame);
  }
  return Fp32Codec().Encode(scales.own, StreamKey{}, announce_work_, scales.frame);
}

// The largest of all workers' scales, unless one of them has sent a notice.
Status ReduceStages::GatherScales(size_t bucket, std::optional<SkipNotice>* notice) {
  BucketScales& scales = buckets_[bucket].scales;
  std::ranges::fill(scales.shared, 0.0f);
  for (int r = 0; r < world_size_; ++r) {
    std::span<const uint8_t> frame = scales.frame;
    if (r != rank_) {
      EQ_ASSIGN_OR_RETURN(frame, Take(bucket, r, kScales));
    }
    EQ_ASSIGN_OR_RETURN(const bool skips, IsNotice(bucket, r, frame, notice));
    if (skips) continue;
    const Status status = DecodeFrame(frame, encode_work_, scales.theirs);
    if (!status.ok()) return FrameError(bucket, r, status);
    std::ranges::transform(scales.shared, scales.theirs, scales.shared.begin(),
                           [](float a, float b) { return std::max(a, b); });
  }
  return {};
}

// Our part of every chunk under the shared scales, of our own too. A notice travels on in their
// place: the others wait for messages of all phases.
Status ReduceStages::EncodeCodes(size_t bucket) {
  BucketBuffers& buffers = buckets_[bucket];
  if (buffers.bucket.gradient.empty()) return {};
  std::optional<SkipNotice> notice;
  EQ_RETURN_IF_ERROR(GatherScales(bucket, &notice));
  for (int n = 1; n <= world_size_; ++n) {
    const int r = NthPeer(n);  // our own comes last
    PeerBuffers& peer = Peer(bucket, r);
    const Chunk part = r == rank_ ? buffers.own : peer.chunk;
    if (part.size == 0) continue;
    const std::span<uint8_t> room =
        encode_frame_.AtLeast(r == rank_ ? buffers.own_part_room : peer.contribution_room);
    size_t size = kSkipNoticeBytes;
    if (notice) {
      WriteSkipNotice(*notice, room);
    } else {
      EQ_ASSIGN_OR_RETURN(size, EncodePartOf(bucket, r, part, room));
    }
    if (r == rank_) {
      Keep(bucket, room.first(size));
    } else {
      EQ_RETURN_IF_ERROR(contributed_.Send(r, Tag(bucket, kParts), room.first(size)));
    }
  }
  return {};
}

Result<size_t> ReduceStages::EncodePartOf(size_t bucket, int chunk, Chunk part,
                                          std::span<uint8_t> frame) {
  BucketBuffers& buffers = buckets_[bucket];
  const std::span<const float> values = buffers.Part(part);
  const Stopwatch watch;
  EQ_ASSIGN_OR_RETURN(const size_t size,
                      buffers.bucket.codec->shared_scale()->Encode(
                          values, buffers.scales.Own(chunk), buffers.scales.Shared(chunk),
                          KeyOf(bucket, kContribute, chunk), encode_work_, frame));
  tally_.AddSeconds(&ReducerStats::encode_seconds, watch);
  if (measuring(bucket)) {
    EQ_RETURN_IF_ERROR(
        Measure(bucket, part, kContribute, values, frame.first(size), &sent_, encode_work_));
  }
  return size;
}

Status ReduceStages::ReduceCodes(size_t bucket) {
  const Chunk own = buckets_[bucket].own;
  if (own.size == 0) return {};
  const std::span<float> sums = std::span(sum_).first(own.size);
  std::optional<SkipNotice> notice;
  EQ_RETURN_IF_ERROR(AddCodes(bucket, sums, &notice));
  return ShareCodes(bucket, sums, notice);
}

// Integers, so that the order is of no account.
Status ReduceStages::AddCodes(size_t bucket, std::span<float> sums,
                              std::optional<SkipNotice>* notice) {
  BucketBuffers& buffers = buckets_[bucket];
  std::ranges::fill(sums, 0.0f);
  for (int r = 0; r < world_size_; ++r) {
    std::span<const uint8_t> frame = buffers.kept.span();
    if (r != rank_) {
      EQ_ASSIGN_OR_RETURN(frame, Take(bucket, r, kParts));
    }
    EQ_ASSIGN_OR_RETURN(const bool skips, IsNotice(bucket, r, frame, notice));
    if (skips) continue;
    const Stopwatch watch;
    const Status status = buffers.bucket.codec->shared_scale()->AddCodes(
        frame, buffers.scales.Shared(rank_), reduce_work_, sums);
    tally_.AddSeconds(&ReducerStats::decode_seconds, watch);
    if (!status.ok()) return FrameError(bucket, r, status);
  }
  return {};
}

// The frame decodes to the mean.
Status ReduceStages::ShareCodes(size_t bucket, std::span<const float> sums,
                                const std::optional<SkipNotice>& notice) {
  BucketBuffers& buffers = buckets_[bucket];
  const std::span<uint8_t> room = reduce_frame_.AtLeast(buffers.own_room);
  if (notice) {
    Skip(bucket, *notice);
    return SendToAll(shared_means_, bucket, kMeans, room.first(WriteSkipNotice(*notice, room)));
  }
  const Stopwatch watch;
  EQ_ASSIGN_OR_RETURN(const size_t size, buffers.bucket.codec->shared_scale()->EncodeMean(
                                             sums, world_size_, buffers.scales.Shared(rank_),
                                             KeyOf(bucket, kShare, rank_), reduce_work_, room));
  tally_.AddSeconds(&ReducerStats::encode_seconds, watch);
  EQ_RETURN_IF_ERROR(SendToAll(shared_means_, bucket, kMeans, room.first(size)));
  const Stopwatch decoding;
  EQ_RETURN_IF_ERROR(DecodeFrame(room.first(size), reduce_work_, buffers.Part(buffers.own)));
  tally_.AddSeconds(&ReducerStats::decode_seconds, decoding);
  return {};
}

}  // namespace elastiquant
