// Codes under a scale that all workers share, and their sums: a value is scale * t with t = -1,
// 0 or 1, so that the sum over N workers is scale times an integer in [-N, N], which can be
// sent exactly (Wen et al., "TernGrad", NeurIPS 2017, section 3.2: scaler sharing).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "elastiquant/codec/bucket/bucket_codec.h"

namespace elastiquant {

// Immutable. Of a codec with frames of kTernary.
class SharedScale {
 public:
  explicit SharedScale(BucketScheme scheme) : scheme_(std::move(scheme)) {}

  // The scales of a message of n values: one for each of the codec's buckets.
  size_t ScaleCount(size_t n) const;
  // Those that Codec::Encode would take, ScaleCount(values.size()) of them, and its errors.
  Status Measure(std::span<const float> values, Workspace& work, std::span<float> scales) const;

  // As Codec::Encode, but with the scales `shared`: the largest that any worker measured.
  // Values are cut off at `own`, what was measured of them, as they are when each worker has
  // its own.
  Result<size_t> Encode(std::span<const float> values, std::span<const float> own,
                        std::span<const float> shared, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const;

  // sums += t. kCorruptData if `frame` is not one of sums.size() values that Encode has made
  // with the scales `shared`.
  Status AddCodes(std::span<const uint8_t> frame, std::span<const float> shared,
                  Workspace& work, std::span<float> sums) const;

  // A frame of the mean over `workers` of what their frames decode to: of sums / workers times
  // the scales. It has 2 workers + 1 levels and codes them with rANS, since sums near 0 are the
  // more frequent. Sums are integers in [-workers, workers]; 1 <= workers <= kMaxWorkers.
  static constexpr int kMaxWorkers = 127;
  size_t MaxMeanBytes(size_t n, int workers) const;
  Result<size_t> EncodeMean(std::span<const float> sums, int workers,
                            std::span<const float> shared, StreamKey key, Workspace& work,
                            std::span<uint8_t> frame) const;

  // The codec as one of so many that share: its NmseBound is that on the squared error of all
  // their messages together, against the sum of their squares.
  std::shared_ptr<const Codec> Among(int workers) const;

 private:
  BucketFormat MeanFormat(int workers) const;

  const BucketScheme scheme_;
};

}  // namespace elastiquant
