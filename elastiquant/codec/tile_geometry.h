// How a message is cut: into buckets, which share a norm or levels, and into tiles, which
// threads work on and which are coded by themselves.
#pragma once

#include <cstddef>
#include <span>

namespace elastiquant {

// Tiles have a fixed number of coordinates: the largest multiple of the bucket that is at most
// kFixedTile or (coded forms, which have a cost for each tile) kMaxTile; one bucket if that is
// longer; and kMaxTile if a bucket is longer than even that.
inline constexpr size_t kFixedTile = 4096;
inline constexpr size_t kMaxTile = 32768;

constexpr size_t CeilDivide(size_t a, size_t b) { return (a + b - 1) / b; }

// A run of coordinates.
struct Piece {
  size_t begin = 0;
  size_t size = 0;
};

// Where a tensor of a message begins whose buckets end with its tensors.
struct TensorStart {
  size_t begin = 0;         // its first coordinate
  size_t first_bucket = 0;  // and bucket
};

class TileGeometry {
 public:
  // bucket 0: one bucket of the whole message, or of each tensor. With tensors, which begin at
  // 0 and must outlive this, buckets are counted from each one's beginning, and its last one
  // may be short; tiles are as without.
  TileGeometry(size_t bucket, bool coded, size_t elements,
               std::span<const TensorStart> tensors = {});

  size_t tiles() const { return tiles_; }
  size_t buckets() const { return buckets_; }
  // Coordinates of every tile but maybe the last.
  size_t tile() const { return tile_; }
  // Whether buckets are longer than tiles.
  bool wide() const { return bucket_ > tile_; }
  // Whether a bucket may lie in several tiles.
  bool straddles() const { return wide() || !tensors_.empty(); }
  // Coordinates that share a run in the index coding (and never more than a tile has).
  size_t run() const { return wide() ? tile_ : bucket_; }

  Piece Tile(size_t tile) const;
  Piece Bucket(size_t bucket) const;
  // The bucket that a coordinate is in; the first one of a tile.
  size_t BucketAt(size_t coordinate) const;
  size_t FirstBucket(size_t tile) const { return BucketAt(tile * tile_); }
  // The part of `bucket` that lies in `tile`; of size 0 if none does.
  Piece Overlap(size_t tile, size_t bucket) const;
  size_t FirstTile(size_t bucket) const { return Bucket(bucket).begin / tile_; }

 private:
  size_t elements_, bucket_, tile_, tiles_, buckets_;
  std::span<const TensorStart> tensors_;
};

}  // namespace elastiquant
