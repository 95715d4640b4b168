// How a message is cut into chunks, of each of which so many values are kept, and into tiles of
// chunks, which threads work on (docs/frame-format.md, "chunks").
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {

// A part of a message, as frames list it: a matrix that is cut into square blocks, or, if cols
// is 0, `rows` values that are cut as they stand.
struct ChunkRun {
  uint32_t rows = 0;
  uint32_t cols = 0;

  uint64_t size() const { return cols == 0 ? rows : uint64_t{rows} * cols; }
};
// And where it is.
struct PlacedRun {
  ChunkRun run;
  size_t begin = 0;        // its first value
  size_t first_chunk = 0;  // its first chunk
};

// All of a message of n values, as they stand.
inline PlacedRun WholeRun(size_t n) { return {{static_cast<uint32_t>(n), 0}, 0, 0}; }

// The values of a chunk stand in rows of `width`, which are `stride` apart in the message.
struct Chunk {
  size_t begin = 0;
  size_t rows = 1;
  size_t width = 0;
  size_t stride = 0;
  size_t kept = 0;  // at the most

  size_t size() const { return rows * width; }
};

// Chunks of so many values, and how many of them are kept.
struct ChunkRule {
  uint32_t chunk = 4096;  // 1 to kMaxChunk
  uint32_t kept = 64;     // 1 to chunk

  // The side of a square block of `chunk` values, or 0 if there is none.
  size_t Side() const;
  // A shorter chunk keeps its part, rounded up.
  size_t KeptOf(size_t size) const { return (size * kept + chunk - 1) / chunk; }
};

// Returns the runs of a message of these tensors. A matrix whose sides are both multiples of
// the block's is one, together with others of as many columns behind it; what is between them
// is one of values as they stand.
std::vector<ChunkRun> RunsOf(std::span<const TensorShape> tensors, const ChunkRule& rule);

// Sets `placed`, which is as long as `runs`. Fails with kCorruptData unless the runs are ones
// that RunsOf could return (but that it puts more of them together), and add up to `elements`.
Status PlaceRuns(std::span<const ChunkRun> runs, const ChunkRule& rule, size_t elements,
                 std::span<PlacedRun> placed);

class ChunkGeometry {
 public:
  // `runs` must outlive this object.
  ChunkGeometry(const ChunkRule& rule, std::span<const PlacedRun> runs);

  size_t chunks() const { return chunks_; }
  size_t tiles() const { return (chunks_ + tile_chunks_ - 1) / tile_chunks_; }
  size_t FirstChunk(size_t tile) const { return tile * tile_chunks_; }
  size_t ChunksOf(size_t tile) const {
    return std::min(tile_chunks_, chunks_ - FirstChunk(tile));
  }
  // The most chunks, and kept values, of any tile.
  size_t MostChunks() const { return std::min(tile_chunks_, chunks_); }
  size_t MostKept() const { return std::min(MostChunks() * rule_.kept, elements_); }

  // Calls visit(chunk) for each chunk of a tile.
  template <typename Visit>
  void VisitTile(size_t tile, const Visit& visit) const {
    const size_t first = FirstChunk(tile), end = first + ChunksOf(tile);
    size_t run = RunAt(first);
    for (size_t c = first; c < end; ++c) {
      while (run + 1 < runs_.size() && runs_[run + 1].first_chunk <= c) ++run;
      visit(ChunkOf(runs_[run], c - runs_[run].first_chunk));
    }
  }
  // How many values a tile keeps if every chunk has as many as it may.
  size_t KeptOf(size_t tile) const;

 private:
  size_t RunAt(size_t chunk) const;
  Chunk ChunkOf(const PlacedRun& run, size_t number) const;

  ChunkRule rule_;
  size_t side_;
  std::span<const PlacedRun> runs_;
  size_t elements_ = 0;
  size_t chunks_ = 0;
  size_t tile_chunks_;
};

}  // namespace elastiquant
