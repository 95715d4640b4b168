// The buckets of a reduction with the frames that cross the network for each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "elastiquant/collective/bucket_memory.h"
#include "elastiquant/collective/chunk.h"
#include "elastiquant/collective/communicator.h"
#include "elastiquant/collective/gradient_reducer.h"
#include "elastiquant/collective/sparse_choice.h"

namespace elastiquant {

// Memory whose pages are not touched before they are needed.
struct FrameBuffer {
  explicit FrameBuffer(size_t n = 0)
      : data(std::make_unique_for_overwrite<uint8_t[]>(n)), size(n) {}
  std::span<uint8_t> span() const { return {data.get(), size}; }
  std::unique_ptr<uint8_t[]> data;
  size_t size;
};

// The scales of a bucket that goes by integer sums, those of chunk j after those of chunk j
// - 1.
struct BucketScales {
  std::vector<Chunk> parts;            // by chunk: where its scales are
  std::vector<float> own, shared;      // what this worker measured; the largest of any worker's
  std::vector<float> theirs;           // another worker's
  FrameBuffer frame;                   // of `own`
  size_t frame_bytes = 0;              // of it in this step
  std::shared_ptr<const Codec> among;  // SharedScale::Among

  std::span<float> Own(int chunk) { return PartOf(own, chunk); }
  std::span<const float> Shared(int chunk) { return PartOf(shared, chunk); }

 private:
  std::span<float> PartOf(std::span<float> scales, int chunk) const {
    const Chunk part = parts[static_cast<size_t>(chunk)];
    return scales.subspan(part.begin, part.size);
  }
};

// What one exchange with one peer needs. Two-phase, sparse scatter-reduce and integer sums:
// phase 1 goes to the owner of a chunk, phase 2 back. All-gather: phase 1 alone, of the whole
// bucket, to all. Integer sums have their scales gathered by all before phase 1.
struct PeerBuffers {
  Chunk chunk;               // the peer's; empty if it can only be an all-gather
  FrameBuffer contribution;  // phase 1: our frame of its chunk
  FrameBuffer their_part;    // phase 1: its frame of our chunk, or of its whole gradient
  FrameBuffer their_mean;    // phase 2: its frame of its chunk's mean, or sum
  FrameBuffer their_scales;
  std::unique_ptr<Transfer> send_contribution, send_mean, receive_part, receive_mean;
  std::unique_ptr<Transfer> send_scales, receive_scales;
};

struct BucketBuffers {
  GradientBucket bucket;
  Exchange exchange;
  Exchange now;         // in this step: of Exchange::kSparse one of the two
  SparseChoice choice;  // of Exchange::kSparse
  BucketMemory memory;
  Chunk own;              // empty if it can only be an all-gather
  FrameBuffer own_frame;  // of our chunk's mean, or of our whole gradient
  size_t own_bytes = 0;   // of it in this step
  // Of a scatter-reduce that is exact: our part of our own chunk, and the chunk's sum.
  FrameBuffer own_part, own_sum;
  size_t own_part_bytes = 0;
  BucketScales scales;             // of integer sums
  std::optional<size_t> residual;  // the field of the memory that has what was lost
  std::vector<PeerBuffers> peers;  // by rank; our own is empty

  // Whose bounds hold of the frames of this worker.
  const Codec* bounded() const {
    return scales.among ? scales.among.get() : bucket.codec.get();
  }
  Chunk Whole() const { return {0, bucket.gradient.size()}; }
  std::span<float> Part(Chunk chunk) const {
    return bucket.gradient.subspan(chunk.begin, chunk.size);
  }
};

// Room for the longest frames that can occur.
BucketBuffers MakeBucketBuffers(GradientBucket bucket, int rank, int world_size);

}  // namespace elastiquant
