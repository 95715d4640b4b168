#include "elastiquant/collective/reduce_buffers.h"

#include <algorithm>
#include <utility>

#include "elastiquant/codec/sparse_part.h"
#include "elastiquant/collective/skip_notice.h"
#include "elastiquant/collective/sparse_sum.h"

namespace elastiquant {

namespace {

// A notice must always fit.
FrameBuffer BufferOf(size_t frame_bytes) {
  return FrameBuffer(std::max(frame_bytes, kSkipNoticeBytes));
}

// Each chunk's frames are the codec's.
void AddTwoPhaseBuffers(BucketBuffers* buffers, int rank, int world_size) {
  const size_t n = buffers->bucket.gradient.size();
  const auto frame = [&](Chunk chunk) {
    if (chunk.size == 0 || world_size == 1) return FrameBuffer();
    return BufferOf(buffers->bucket.codec->MaxFrameBytes(chunk.size));
  };
  buffers->own = ChunkOf(n, world_size, rank);
  buffers->own_frame = frame(buffers->own);
  for (int r = 0; r < world_size; ++r) {
    if (r == rank) continue;
    PeerBuffers& peer = buffers->peers[static_cast<size_t>(r)];
    peer.chunk = ChunkOf(n, world_size, r);
    peer.contribution = frame(peer.chunk);
    peer.their_mean = frame(peer.chunk);
    peer.their_part = frame(buffers->own);
  }
}

void AddWholeBuffers(BucketBuffers* buffers, int rank, int world_size) {
  const size_t n = buffers->bucket.gradient.size();
  if (n == 0) return;
  const size_t bytes = buffers->bucket.codec->MaxFrameBytes(n);
  buffers->own_frame = BufferOf(bytes);
  for (int r = 0; r < world_size; ++r) {
    if (r != rank) buffers->peers[static_cast<size_t>(r)].their_part = BufferOf(bytes);
  }
}

// Beside those of the whole.
void AddSparseBuffers(BucketBuffers* buffers, int rank, int world_size) {
  const size_t n = buffers->bucket.gradient.size();
  if (n == 0 || world_size == 1) return;
  const auto part = [](Chunk chunk) { return BufferOf(MaxSparsePartBytes(chunk.size)); };
  const auto sum = [](Chunk chunk) { return BufferOf(MaxSparseSumBytes(chunk.size)); };
  buffers->own = ChunkOf(n, world_size, rank);
  buffers->own_part = part(buffers->own);
  buffers->own_sum = sum(buffers->own);
  for (int r = 0; r < world_size; ++r) {
    if (r == rank) continue;
    PeerBuffers& peer = buffers->peers[static_cast<size_t>(r)];
    peer.chunk = ChunkOf(n, world_size, r);
    peer.contribution = part(peer.chunk);
    peer.their_mean = sum(peer.chunk);
    if (peer.their_part.size < buffers->own_part.size) peer.their_part = part(buffers->own);
  }
}

}  // namespace

BucketBuffers MakeBucketBuffers(GradientBucket bucket, int rank, int world_size) {
  BucketBuffers buffers;
  buffers.exchange = buffers.now = bucket.way();
  buffers.memory = BucketMemory(*bucket.codec, bucket.gradient.size());
  const std::vector<std::string> fields = bucket.codec->StateFields();
  const auto residual = std::ranges::find(fields, "residual");
  if (residual != fields.end()) {
    buffers.residual = static_cast<size_t>(residual - fields.begin());
  }
  buffers.peers.resize(static_cast<size_t>(world_size));
  buffers.bucket = std::move(bucket);
  if (buffers.exchange == Exchange::kTwoPhase) {
    AddTwoPhaseBuffers(&buffers, rank, world_size);
    return buffers;
  }
  AddWholeBuffers(&buffers, rank, world_size);
  if (buffers.exchange != Exchange::kAllGather) AddSparseBuffers(&buffers, rank, world_size);
  return buffers;
}

}  // namespace elastiquant
