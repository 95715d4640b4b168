// A bucket is cut into chunks, one for each worker: chunk j is reduced by worker j.
#pragma once

#include <cstddef>

namespace elastiquant {

// A run of a bucket's coordinates.
struct Chunk {
  size_t begin = 0;
  size_t size = 0;
};

// Returns chunk j of `chunks` of a vector of n values. The chunks follow one another, cover the
// vector, and differ little in size. Where the vector is long they begin at multiples of
// kChunkAlignment, so that a codec's own buckets are not cut into short ones. Some may be
// empty.
inline constexpr size_t kChunkAlignment = 512;
Chunk ChunkOf(size_t n, int chunks, int j);

}  // namespace elastiquant
