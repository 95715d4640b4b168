#include "elastiquant/collective/reduce_buffers.h"

#include <algorithm>
#include <utility>

#include "elastiquant/collective/skip_notice.h"

namespace elastiquant {

BucketBuffers MakeBucketBuffers(GradientBucket bucket, int rank, int world_size) {
  const size_t n = bucket.gradient.size();
  const Exchange exchange = bucket.way();
  const bool gathers = exchange == Exchange::kAllGather;
  const auto frame = [&](Chunk chunk) {
    if (chunk.size == 0 || (world_size == 1 && !gathers)) return FrameBuffer();
    return FrameBuffer(std::max(bucket.codec->MaxFrameBytes(chunk.size), kSkipNoticeBytes));
  };
  BucketBuffers buffers;
  buffers.exchange = exchange;
  buffers.memory = BucketMemory(*bucket.codec, n);
  const std::vector<std::string> fields = bucket.codec->StateFields();
  const auto residual = std::ranges::find(fields, "residual");
  if (residual != fields.end()) {
    buffers.residual = static_cast<size_t>(residual - fields.begin());
  }
  buffers.own = gathers ? Chunk{0, n} : ChunkOf(n, world_size, rank);
  buffers.own_frame = frame(buffers.own);
  buffers.peers.resize(static_cast<size_t>(world_size));
  for (int r = 0; r < world_size; ++r) {
    if (r == rank) continue;
    PeerBuffers& peer = buffers.peers[static_cast<size_t>(r)];
    if (!gathers) peer.chunk = ChunkOf(n, world_size, r);
    peer.contribution = frame(peer.chunk);
    peer.their_mean = frame(peer.chunk);
    peer.their_part = frame(buffers.own);
  }
  buffers.bucket = std::move(bucket);
  return buffers;
}

}  // namespace elastiquant
