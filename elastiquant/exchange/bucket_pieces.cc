#include "elastiquant/exchange/bucket_pieces.h"

namespace elastiquant {
namespace {

bool MayBeCut(const Codec& codec) {
  const Exchange exchange = codec.exchange();
  return (exchange == Exchange::kTwoPhase || exchange == Exchange::kIntegerSum) &&
         codec.StateFields().empty();
}

}  // namespace

BucketPieces::BucketPieces(const std::vector<GradientBucket>& buckets) {
  for (size_t b = 0; b < buckets.size(); ++b) {
    first_.push_back(pieces_.size());
    const size_t n = buckets[b].gradient.size();
    const bool cut = n > kMostElements && MayBeCut(*buckets[b].codec);
    const auto count = static_cast<int>(cut ? (n - 1) / kMostElements + 1 : 1);
    for (int j = 0; j < count; ++j) pieces_.push_back({b, ChunkOf(n, count, j)});
  }
  first_.push_back(pieces_.size());
}

std::vector<GradientBucket> BucketPieces::Cut(
    const std::vector<GradientBucket>& buckets) const {
  std::vector<GradientBucket> cut;
  for (const BucketPiece& piece : pieces_) {
    cut.push_back(buckets[piece.bucket]);
    cut.back().gradient = cut.back().gradient.subspan(piece.part.begin, piece.part.size);
  }
  return cut;
}

}  // namespace elastiquant
