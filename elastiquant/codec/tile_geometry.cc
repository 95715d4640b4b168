#include "elastiquant/codec/tile_geometry.h"

#include <algorithm>

namespace elastiquant {

TileGeometry::TileGeometry(size_t bucket, bool coded, size_t elements,
                           std::span<const TensorStart> tensors)
    : elements_(elements), tensors_(tensors) {
  bucket_ = bucket == 0 ? std::max<size_t>(elements, 1) : bucket;
  const size_t goal = coded ? kMaxTile : kFixedTile;
  tile_ = bucket_ > kMaxTile ? kMaxTile : std::max<size_t>(goal / bucket_, 1) * bucket_;
  tiles_ = CeilDivide(elements, tile_);
  const TensorStart last = tensors.empty() ? TensorStart{} : tensors.back();
  buckets_ = last.first_bucket + CeilDivide(elements - last.begin, bucket_);
}

Piece TileGeometry::Tile(size_t tile) const {
  const size_t begin = tile * tile_;
  return {begin, std::min(tile_, elements_ - begin)};
}

Piece TileGeometry::Bucket(size_t bucket) const {
  if (tensors_.empty()) {
    const size_t begin = std::min(bucket * bucket_, elements_);
    return {begin, std::min(bucket_, elements_ - begin)};
  }
  const auto next = std::ranges::upper_bound(tensors_, bucket, {}, &TensorStart::first_bucket);
  const TensorStart& tensor = *(next - 1);
  const size_t end = next == tensors_.end() ? elements_ : next->begin;
  const size_t begin = tensor.begin + (bucket - tensor.first_bucket) * bucket_;
  return {begin, std::min(bucket_, end - begin)};
}

size_t TileGeometry::BucketAt(size_t at) const {
  if (tensors_.empty()) return at / bucket_;
  const TensorStart& tensor =
      *(std::ranges::upper_bound(tensors_, at, {}, &TensorStart::begin) - 1);
  return tensor.first_bucket + (at - tensor.begin) / bucket_;
}

Piece TileGeometry::Overlap(size_t tile, size_t bucket) const {
  const Piece whole = Bucket(bucket);
  const size_t begin = std::max(tile * tile_, whole.begin);
  const size_t end = std::min((tile + 1) * tile_, whole.begin + whole.size);
  return {begin, end > begin ? end - begin : 0};
}

}  // namespace elastiquant
