#include "elastiquant/codec/tile_geometry.h"

#include <algorithm>

namespace elastiquant {

TileGeometry::TileGeometry(size_t bucket, bool coded, size_t elements) : elements_(elements) {
  bucket_ = bucket == 0 ? std::max<size_t>(elements, 1) : bucket;
  const size_t goal = coded ? kMaxTile : kFixedTile;
  tile_ = bucket_ > kMaxTile ? kMaxTile : std::max<size_t>(goal / bucket_, 1) * bucket_;
  tiles_ = CeilDivide(elements, tile_);
  buckets_ = CeilDivide(elements, bucket_);
}

Piece TileGeometry::Tile(size_t tile) const {
  const size_t begin = tile * tile_;
  return {begin, std::min(tile_, elements_ - begin)};
}

Piece TileGeometry::Bucket(size_t bucket) const {
  const size_t begin = bucket * bucket_;
  return {begin, std::min(bucket_, elements_ - begin)};
}

Piece TileGeometry::Overlap(size_t tile, size_t bucket) const {
  const size_t begin = std::max(tile * tile_, bucket * bucket_);
  const size_t end = std::min({(tile + 1) * tile_, (bucket + 1) * bucket_, elements_});
  return {begin, end > begin ? end - begin : 0};
}

}  // namespace elastiquant
