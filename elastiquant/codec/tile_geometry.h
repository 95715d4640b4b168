// How a message is cut into buckets, whose coordinates share a norm or levels, and into tiles,
// which threads work on and which are coded independently of each other.
#pragma once

#include <cstddef>
#include <span>

namespace elastiquant {

// Tiles have a fixed number of coordinates. It is the largest multiple of the bucket that is at
// most kFixedTile, or at most kMaxTile in coded forms, which have a cost for each tile. If one
// bucket is longer than that, a tile is one bucket; and if a bucket is longer than even
// kMaxTile, a tile has kMaxTile coordinates.
inline constexpr size_t kFixedTile = 4096;
inline constexpr size_t kMaxTile = 32768;

constexpr size_t CeilDivide(size_t a, size_t b) { return (a + b - 1) / b; }

// A run of coordinates.
struct Piece {
  size_t begin = 0;
  size_t size = 0;
};

// Where a tensor begins, in a message whose buckets end with its tensors.
struct TensorStart {
  size_t begin = 0;         // its first coordinate
  size_t first_bucket = 0;  // its first bucket
};

class TileGeometry {
 public:
  // If bucket is 0, the whole message is one bucket, or each tensor is one. With tensors, the
  // first of which begins at 0 and which must outlive this object, buckets are counted from the
  // beginning of each tensor, and its last bucket may be short; tiles are the same as without
  // tensors.
  TileGeometry(size_t bucket, bool coded, size_t elements,
               std::span<const TensorStart> tensors = {});

  size_t tiles() const { return tiles_; }
  size_t buckets() const { return buckets_; }
  // Returns the number of coordinates of every tile, except maybe the last.
  size_t tile() const { return tile_; }
  // Whether buckets are longer than tiles.
  bool wide() const { return bucket_ > tile_; }
  // Whether a bucket may lie in several tiles.
  bool straddles() const { return wide() || !tensors_.empty(); }
  // Returns the number of coordinates that share a run in the index coding, which is never more
  // than a tile has.
  size_t run() const { return wide() ? tile_ : bucket_; }

  Piece Tile(size_t tile) const;
  Piece Bucket(size_t bucket) const;
  // Return the bucket that a coordinate is in, and the first one of a tile.
  size_t BucketAt(size_t coordinate) const;
  size_t FirstBucket(size_t tile) const { return BucketAt(tile * tile_); }
  // Returns the part of `bucket` that lies in `tile`, which has size 0 if none does.
  Piece Overlap(size_t tile, size_t bucket) const;
  size_t FirstTile(size_t bucket) const { return Bucket(bucket).begin / tile_; }

 private:
  size_t elements_, bucket_, tile_, tiles_, buckets_;
  std::span<const TensorStart> tensors_;
};

}  // namespace elastiquant
