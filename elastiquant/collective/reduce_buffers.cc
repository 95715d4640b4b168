#include "elastiquant/collective/reduce_buffers.h"

#include <algorithm>
#include <utility>

#include "elastiquant/codec/shared_scale.h"
#include "elastiquant/codec/sparse_part.h"
#include "elastiquant/collective/fp32_codec.h"
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

BucketScales MakeBucketScales(const SharedScale& codes, size_t n, int world_size) {
  BucketScales scales;
  size_t count = 0;
  for (int j = 0; j < world_size; ++j) {
    const size_t size = codes.ScaleCount(ChunkOf(n, world_size, j).size);
    scales.parts.push_back({count, size});
    count += size;
  }
  scales.own.resize(count);
  scales.shared.resize(count);
  scales.theirs.resize(count);
  scales.frame = BufferOf(Fp32Codec().MaxFrameBytes(count));
  scales.among = codes.Among(world_size);
  return scales;
}

// Beside those of two phases, whose means have other frames.
void AddIntegerSumBuffers(BucketBuffers* buffers, int rank, int world_size) {
  const GradientBucket& bucket = buffers->bucket;
  const SharedScale& codes = *bucket.codec->shared_scale();
  const auto mean = [&](Chunk chunk) {
    return chunk.size == 0 ? FrameBuffer()
                           : BufferOf(codes.MaxMeanBytes(chunk.size, world_size));
  };
  buffers->scales = MakeBucketScales(codes, bucket.gradient.size(), world_size);
  buffers->own_part = BufferOf(bucket.codec->MaxFrameBytes(buffers->own.size));
  buffers->own_frame = mean(buffers->own);
  for (int r = 0; r < world_size; ++r) {
    if (r == rank) continue;
    PeerBuffers& peer = buffers->peers[static_cast<size_t>(r)];
    peer.their_mean = mean(peer.chunk);
    peer.their_scales = BufferOf(buffers->scales.frame.size);
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
  const bool sums = buffers.exchange == Exchange::kIntegerSum && world_size > 1;
  if (buffers.exchange == Exchange::kTwoPhase || sums) {
    AddTwoPhaseBuffers(&buffers, rank, world_size);
    if (sums) AddIntegerSumBuffers(&buffers, rank, world_size);
    return buffers;
  }
  AddWholeBuffers(&buffers, rank, world_size);
  const bool sparse =
      buffers.exchange == Exchange::kSparse || buffers.exchange == Exchange::kSparseScatter;
  if (sparse) AddSparseBuffers(&buffers, rank, world_size);
  return buffers;
}

}  // namespace elastiquant
