#include "elastiquant/codec/elastic/magnitude_sample.h"

#include <algorithm>
#include <limits>

#include "elastiquant/base/random.h"
#include "elastiquant/codec/tile_geometry.h"

namespace elastiquant {
namespace {

// Draws the sample that AddSample adds. Pieces of a bucket are runs of its values.
class Sample {
 public:
  static constexpr size_t kPiece = 256, kLeastPieces = 128, kMostPieces = 1024, kOneIn = 16;

  Sample(std::span<const float> values, NormOrder order, size_t bucket, std::span<float> norms)
      : values_(values),
        order_(order),
        geometry_(bucket, false, values.size()),
        norms_(norms) {}

  void AddTo(MagnitudeHistogram* histogram) {
    const size_t buckets = geometry_.buckets();
    const size_t known = std::min(buckets, kMostSampledNorms);
    const size_t pieces =
        std::clamp(values_.size() / (kPiece * kOneIn), kLeastPieces, kMostPieces);
    double total = 0;
    for (size_t k = 0; k < known; ++k) {
      if (k + kAhead < known) Prefetch(BucketNumber(k + kAhead, known));
      norms_[k] = NormOf(BucketNumber(k, known));
      total += Square(norms_[k]);
    }
    if (total == 0) return AddFirst(pieces, histogram);
    // Piece i is taken where the sum of the squares reaches (i + 1/2) / pieces of the total.
    double sum = 0;
    size_t drawn = 0;
    for (size_t k = 0; k < known && drawn < pieces; ++k) {
      sum += Square(norms_[k]);
      const double share = sum / total * static_cast<double>(pieces) + 0.5;
      const size_t until = std::min(static_cast<size_t>(share), pieces);
      if (until > drawn) AddPieces(BucketNumber(k, known), norms_[k], until - drawn, histogram);
      drawn = std::max(drawn, until);
    }
  }

 private:
  // Buckets are far apart, and memory takes as long to bring one as it takes to measure it.
  static constexpr size_t kAhead = 4, kMostPrefetched = 2048, kLineFloats = 16;
  void Prefetch(size_t bucket) const {
    const Piece piece = geometry_.Bucket(bucket);
    for (size_t i = 0; i < std::min(piece.size, kMostPrefetched); i += kLineFloats) {
      __builtin_prefetch(values_.data() + piece.begin + i);
    }
  }

  static double Square(float norm) { return static_cast<double>(norm) * norm; }

  // Returns the k-th of the `known` buckets, one of which is taken from each stretch.
  size_t BucketNumber(size_t k, size_t known) const {
    return OneOf(k, known, geometry_.buckets());
  }
  // Returns one of `all` numbers, out of the k-th of `parts` equal parts. A hash chooses it, so
  // that the choice does not keep step with layers.
  static size_t OneOf(size_t k, size_t parts, size_t all) {
    const size_t begin = k * all / parts, end = (k + 1) * all / parts;
    return begin + Mix64(k) % (end - begin);
  }

  // Returns 0 for a bucket whose norm is not finite, which encoding will refuse.
  float NormOf(size_t bucket) const {
    const Piece piece = geometry_.Bucket(bucket);
    const float norm = BucketNorm(order_, values_.subspan(piece.begin, piece.size));
    return norm <= std::numeric_limits<float>::max() ? norm : 0;
  }

  // Adds `count` pieces of a bucket, or all if it has fewer, with a weight that makes up for
  // the others.
  void AddPieces(size_t bucket, float norm, size_t count, MagnitudeHistogram* histogram) const {
    const Piece whole = geometry_.Bucket(bucket);
    const size_t all = CeilDivide(whole.size, kPiece), taken = std::min(count, all);
    for (size_t k = 0; k < taken; ++k) {
      const size_t begin = OneOf(k, taken, all) * kPiece;
      const size_t size = std::min(kPiece, whole.size - begin);
      const double weight = static_cast<double>(count) / static_cast<double>(taken) *
                            static_cast<double>(whole.size) / static_cast<double>(size);
      histogram->Add(values_.subspan(whole.begin + begin, size), norm, weight);
    }
  }

  // Adds pieces of the first buckets that are not zero, for messages that hardly have any.
  void AddFirst(size_t count, MagnitudeHistogram* histogram) const {
    for (size_t bucket = 0; bucket < geometry_.buckets() && count > 0; ++bucket) {
      const float norm = NormOf(bucket);
      if (norm == 0) continue;
      AddPieces(bucket, norm, 1, histogram);
      --count;
    }
  }

  const std::span<const float> values_;
  const NormOrder order_;
  const TileGeometry geometry_;
  const std::span<float> norms_;
};

}  // namespace

void AddSample(std::span<const float> values, NormOrder order, size_t bucket,
               std::span<float> norms, MagnitudeHistogram* histogram) {
  Sample(values, order, bucket, norms).AddTo(histogram);
}

}  // namespace elastiquant
