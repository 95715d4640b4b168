#include "elastiquant/codec/bucket/shared_scale.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

namespace elastiquant {
namespace {

// The digit of an integer in [-top, top] is itself plus top.
class IntegerDigits : public BucketQuantiser {
 public:
  explicit IntegerDigits(int top) : top_(static_cast<float>(top)) {}

  bool Measure(std::span<const float>, std::span<uint8_t>, std::span<float>) const override {
    return false;  // scales are given
  }
  void Quantise(std::span<const float> values, std::span<const float>, RandomRun,
                uint8_t* digits) const override {
    for (size_t i = 0; i < values.size(); ++i) {
      digits[i] = static_cast<uint8_t>(values[i] + top_);
    }
  }

 private:
  const float top_;
};

std::span<float> FloatsIn(std::span<uint8_t> bytes, size_t n) {
  return {reinterpret_cast<float*>(bytes.data()), n};
}

}  // namespace

size_t SharedScale::ScaleCount(size_t n) const {
  return BucketLayout(scheme_.format, n).buckets();
}

Status SharedScale::Measure(std::span<const float> values, Workspace& work,
                            std::span<float> scales) const {
  return MeasureBuckets(scheme_, values, work, scales);
}

Result<size_t> SharedScale::Encode(std::span<const float> values, std::span<const float> own,
                                   std::span<const float> shared, StreamKey key,
                                   Workspace& work, std::span<uint8_t> frame) const {
  const BucketLayout layout(scheme_.format, values.size());
  const std::span<float> cut =
      FloatsIn(work.SharedScratch(Workspace::kCodecSlot, values.size_bytes()), values.size());
  const auto cut_bucket = [&](size_t bucket, int) {
    const Piece piece = layout.Bucket(bucket);
    for (size_t i = piece.begin; i < piece.begin + piece.size; ++i) {
      cut[i] = std::clamp(values[i], -own[bucket], own[bucket]);
    }
  };
  work.ParallelFor(layout.buckets(), std::cref(cut_bucket));
  return EncodeBuckets(scheme_, cut, key, work, frame, shared);
}

Status SharedScale::AddCodes(std::span<const uint8_t> frame, std::span<const float> shared,
                             Workspace& work, std::span<float> sums) const {
  EQ_ASSIGN_OR_RETURN(const FrameView view, ParseFrame(frame));
  if (view.codec != scheme_.format.codec ||
      !std::ranges::equal(view.parameters, WriteBucketParameters(scheme_.format))) {
    return CorruptData("the frame is not one of codec '" + scheme_.spec + "'");
  }
  if (view.elements != sums.size()) {
    return CorruptData("the frame has " + std::to_string(view.elements) + " values, not " +
                       std::to_string(sums.size()));
  }
  return AddUnscaled(view, shared, work, sums);
}

// A value of the table is (2 digit - 2 N) / 2 N = sum / N.
BucketFormat SharedScale::MeanFormat(int workers) const {
  BucketFormat format;
  format.codec = CodecId::kInnovation;
  format.radix = 2 * workers + 1;
  format.coding = IndexCoding::kRans;
  format.bucket = scheme_.format.bucket;
  return format;
}

size_t SharedScale::MaxMeanBytes(size_t n, int workers) const {
  return MaxBucketFrameBytes(MeanFormat(workers), n);
}

Result<size_t> SharedScale::EncodeMean(std::span<const float> sums, int workers,
                                       std::span<const float> shared, StreamKey key,
                                       Workspace& work, std::span<uint8_t> frame) const {
  BucketScheme scheme;
  scheme.format = MeanFormat(workers);
  scheme.quantiser = std::make_shared<IntegerDigits>(workers);
  return EncodeBuckets(scheme, sums, key, work, frame, shared);
}

// Together they are a message of `workers` times the values, quantised with its own scale.
std::shared_ptr<const Codec> SharedScale::Among(int workers) const {
  BucketScheme scheme = scheme_;
  if (scheme.bound) {
    scheme.bound = [bound = scheme_.bound, workers](double d) { return bound(d * workers); };
  }
  return MakeBucketCodec(std::move(scheme));
}

}  // namespace elastiquant
