// The stages of a bucket whose codec asks for an all-gather.
#include <algorithm>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/collective/reduce_stages.h"

namespace elastiquant {

Status ReduceStages::EncodeWhole(size_t bucket) {
  BucketBuffers& buffers = buckets_[bucket];
  if (buffers.own.size == 0) return {};
  for (PeerBuffers& peer : buffers.peers) {
    if (peer.send_contribution) EQ_RETURN_IF_ERROR(peer.send_contribution->Wait().status());
  }
  EQ_ASSIGN_OR_RETURN(buffers.own_bytes,
                      EncodeOrNotice(encode_work_, bucket, buffers.bucket.gradient, buffers.own,
                                     kContribute, rank_, buffers.own_frame));
  const auto frame = buffers.own_frame.span().first(buffers.own_bytes);
  if (measuring(bucket)) {
    EQ_RETURN_IF_ERROR(Measure(bucket, buffers.own, kContribute, buffers.bucket.gradient, frame,
                               &sent_, encode_work_));
  }
  for (int n = 1; n < world_size_; ++n) {
    const int r = NthPeer(n);
    Peer(bucket, r).send_contribution = comm_->Send(r, Tag(bucket, kContribute), frame);
  }
  return {};
}

// Everybody adds the same frames in the same order, his own among them.
Status ReduceStages::ReduceWhole(size_t bucket) {
  BucketBuffers& buffers = buckets_[bucket];
  if (buffers.own.size == 0) return {};
  const std::span<float> sum = std::span(sum_).first(buffers.own.size);
  std::fill(sum.begin(), sum.end(), 0.0f);
  std::optional<SkipNotice> notice;
  for (int r = 0; r < world_size_; ++r) {
    const auto own = buffers.own_frame.span().first(buffers.own_bytes);
    EQ_RETURN_IF_ERROR(r == rank_ ? AddFrame(bucket, r, own, sum, &notice)
                                  : AddPart(bucket, r, sum, &notice));
  }
  if (!notice) {
    notice = FindNonFinite(sum, 0, static_cast<uint32_t>(bucket), static_cast<uint32_t>(rank_));
    if (notice) notice->worker = 0;  // a sum too large is the same on all
  }
  if (notice) {
    Skip(bucket, *notice);
    return {};
  }
  const auto n = static_cast<float>(world_size_);
  std::ranges::transform(sum, buffers.bucket.gradient.begin(), [n](float v) { return v / n; });
  return {};
}

}  // namespace elastiquant
