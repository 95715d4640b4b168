// The buckets of a reduction, and the room that frames need which cross the network for each.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "elastiquant/exchange/bucket_memory.h"
#include "elastiquant/exchange/chunk.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/exchange/sparse_choice.h"
#include "elastiquant/net/buffer_pool.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// A stage's room for the frame that it works on. Its pages take no memory before they are
// written to.
class FrameScratch {
 public:
  std::span<uint8_t> AtLeast(size_t size) {
    if (size_ < size) {
      data_ = std::make_unique_for_overwrite<uint8_t[]>(size);
      size_ = size;
    }
    return {data_.get(), size};
  }
  size_t size() const { return size_; }

 private:
  std::unique_ptr<uint8_t[]> data_;
  size_t size_ = 0;
};

// Of what a message is encoded: what takes random numbers. There are two a bucket and chunk.
enum class Phase : uint32_t { kContribute = 0, kShare = 1 };

// What may come from a worker for a bucket, each under a tag of its own: parts of a sum, the
// mean or sum of its chunk, scales.
enum class Mail : uint32_t { kParts = 0, kMeans = 1, kScales = 2 };
inline constexpr size_t kMails = 3;

// The scales of a bucket that goes by integer sums, those of chunk j after those of chunk j
// - 1.
struct BucketScales {
  std::vector<Chunk> parts;            // by chunk: where its scales are
  std::vector<float> own, shared;      // what this worker measured; the largest of any worker's
  std::vector<float> theirs;           // another worker's
  std::vector<uint8_t> frame;          // of `own`, in this step
  size_t room = 0;                     // for such a frame
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
  Chunk chunk;                   // the peer's; empty if it can only be an all-gather
  size_t contribution_room = 0;  // phase 1: for our frame of its chunk
  // For its frames of our chunk, or of its whole gradient; of its chunk's mean, or sum; of its
  // scales.
  std::array<size_t, kMails> room{};
  std::array<std::unique_ptr<Incoming>, kMails> receive;
};

struct BucketBuffers {
  GradientBucket bucket;
  Exchange exchange;
  Exchange now;         // in this step: of Exchange::kSparse one of the two
  SparseChoice choice;  // of Exchange::kSparse
  BucketMemory memory;
  Chunk own;            // empty if it can only be an all-gather
  size_t own_room = 0;  // for the frame of our chunk's mean, or of our whole gradient
  // Of a scatter-reduce that is exact: for our part of our own chunk, and for the chunk's sum.
  size_t own_part_room = 0, own_sum_room = 0;
  BufferPool::Buffer kept;  // the frame of ours that Reduce adds with the others', until then
  BucketScales scales;      // of integer sums
  std::optional<size_t> residual;  // the field of the memory that has what was lost
  std::vector<PeerBuffers> peers;  // by rank; our own is empty

  // That frames of a phase are encoded under.
  const Codec& codec(Phase phase) const {
    return phase == Phase::kShare && bucket.down ? *bucket.down : *bucket.codec;
  }
  // Whose bounds hold of this worker's frames of a phase.
  const Codec* bounded(Phase phase) const {
    return scales.among ? scales.among.get() : &codec(phase);
  }
  Chunk Whole() const { return {0, bucket.gradient.size()}; }
  std::span<float> Part(Chunk chunk) const {
    return bucket.gradient.subspan(chunk.begin, chunk.size);
  }
};

// With room for the longest frames that can occur.
BucketBuffers MakeBucketBuffers(GradientBucket bucket, int rank, int world_size);

}  // namespace elastiquant
