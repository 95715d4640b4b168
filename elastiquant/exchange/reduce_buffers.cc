#include "elastiquant/exchange/reduce_buffers.h"

#include <algorithm>
#include <utility>

#include "elastiquant/codec/bucket/shared_scale.h"
#include "elastiquant/codec/sparse/sparse_part.h"
#include "elastiquant/exchange/fp32_codec.h"
#include "elastiquant/exchange/skip_notice.h"
#include "elastiquant/exchange/sparse_sum.h"

namespace elastiquant {

namespace {

// A notice must always fit.
size_t RoomFor(size_t frame_bytes) { return std::max(frame_bytes, kSkipNoticeBytes); }

size_t& RoomOf(PeerBuffers& peer, Mail mail) { return peer.room[static_cast<size_t>(mail)]; }

// Each chunk's frames are the codec's.
void AddTwoPhaseBuffers(BucketBuffers* buffers, int rank, int world_size) {
  const size_t n = buffers->bucket.gradient.size();
  const auto frame = [&](Chunk chunk, Phase phase) {
    if (chunk.size == 0 || world_size == 1) return size_t{0};
    return RoomFor(buffers->codec(phase).MaxFrameBytes(chunk.size));
  };
  buffers->own = ChunkOf(n, world_size, rank);
  buffers->own_room = frame(buffers->own, Phase::kShare);
  for (int r = 0; r < world_size; ++r) {
    if (r == rank) continue;
    PeerBuffers& peer = buffers->peers[static_cast<size_t>(r)];
    peer.chunk = ChunkOf(n, world_size, r);
    peer.contribution_room = frame(peer.chunk, Phase::kContribute);
    RoomOf(peer, Mail::kParts) = frame(buffers->own, Phase::kContribute);
    RoomOf(peer, Mail::kMeans) = frame(peer.chunk, Phase::kShare);
  }
}

void AddWholeBuffers(BucketBuffers* buffers, int rank, int world_size) {
  const size_t n = buffers->bucket.gradient.size();
  if (n == 0) return;
  buffers->own_room = RoomFor(buffers->bucket.codec->MaxFrameBytes(n));
  for (int r = 0; r < world_size; ++r) {
    if (r == rank) continue;
    RoomOf(buffers->peers[static_cast<size_t>(r)], Mail::kParts) = buffers->own_room;
  }
}

// Beside those of the whole.
void AddSparseBuffers(BucketBuffers* buffers, int rank, int world_size) {
  const size_t n = buffers->bucket.gradient.size();
  if (n == 0 || world_size == 1) return;
  const auto part = [](Chunk chunk) { return RoomFor(MaxSparsePartBytes(chunk.size)); };
  const auto sum = [](Chunk chunk) { return RoomFor(MaxSparseSumBytes(chunk.size)); };
  buffers->own = ChunkOf(n, world_size, rank);
  buffers->own_part_room = part(buffers->own);
  buffers->own_sum_room = sum(buffers->own);
  for (int r = 0; r < world_size; ++r) {
    if (r == rank) continue;
    PeerBuffers& peer = buffers->peers[static_cast<size_t>(r)];
    peer.chunk = ChunkOf(n, world_size, r);
    peer.contribution_room = part(peer.chunk);
    RoomOf(peer, Mail::kMeans) = sum(peer.chunk);
    size_t& parts = RoomOf(peer, Mail::kParts);
    parts = std::max(parts, buffers->own_part_room);
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
  scales.room = RoomFor(Fp32Codec().MaxFrameBytes(count));
  scales.among = codes.Among(world_size);
  return scales;
}

// Beside those of two phases, whose means have other frames.
void AddIntegerSumBuffers(BucketBuffers* buffers, int rank, int world_size) {
  const GradientBucket& bucket = buffers->bucket;
  const SharedScale& codes = *bucket.codec->shared_scale();
  const auto mean = [&](Chunk chunk) {
    return chunk.size == 0 ? 0 : RoomFor(codes.MaxMeanBytes(chunk.size, world_size));
  };
  buffers->scales = MakeBucketScales(codes, bucket.gradient.size(), world_size);
  buffers->own_part_room = RoomFor(bucket.codec->MaxFrameBytes(buffers->own.size));
  buffers->own_room = mean(buffers->own);
  for (int r = 0; r < world_size; ++r) {
    if (r == rank) continue;
    PeerBuffers& peer = buffers->peers[static_cast<size_t>(r)];
    RoomOf(peer, Mail::kMeans) = mean(peer.chunk);
    RoomOf(peer, Mail::kScales) = buffers->scales.room;
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
