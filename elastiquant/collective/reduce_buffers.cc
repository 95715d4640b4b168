#include "elastiquant/collective/reduce_buffers.h"

#include <algorithm>
#include <utility>

#include "elastiquant/collective/skip_notice.h"

namespace elastiquant {

BucketBuffers MakeBucketBuffers(GradientBucket bucket, int rank, int world_size) {
  const auto frame = [&](Chunk chunk) {
    if (chunk.size == 0 || world_size == 1) return FrameBuffer();
    return FrameBuffer(std::max(bucket.codec->MaxFrameBytes(chunk.size), kSkipNoticeBytes));
  };
  const size_t n = bucket.gradient.size();
  BucketBuffers buffers;
  buffers.own = ChunkOf(n, world_size, rank);
  buffers.mean = frame(buffers.own);
  buffers.peers.resize(static_cast<size_t>(world_size));
  for (int r = 0; r < world_size; ++r) {
    if (r == rank) continue;
    PeerBuffers& peer = buffers.peers[static_cast<size_t>(r)];
    peer.chunk = ChunkOf(n, world_size, r);
    peer.contribution = frame(peer.chunk);
    peer.their_mean = frame(peer.chunk);
    peer.their_part = frame(buffers.own);
  }
  buffers.bucket = std::move(bucket);
  return buffers;
}

}  // namespace elastiquant
