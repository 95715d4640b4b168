// The engine of the bucketed quantisers: a scheme says how a bucket is measured and its values
// are rounded; cutting, threads, packing and framing are done here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "elastiquant/codec/bucket/bucket_codes.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/kernels/quantize.h"

namespace elastiquant {

// Schemes whose measuring needs more than a few sums take buckets up to this; they lie in one
// tile then.
inline constexpr size_t kLargestSortedBucket = kMaxTile;

// Immutable, and used by several threads at once.
class BucketQuantiser {
 public:
  virtual ~BucketQuantiser() = default;

  // Bytes that Measure needs for a bucket of n values.
  virtual size_t ScratchBytes(size_t /*n*/) const { return 0; }

  // Side data of a bucket of at least one value: `side` has BucketFormat::side() floats. False
  // if a value is NaN or infinite, or if what should be in `side` is beyond fp32. `scratch` is
  // aligned for floats.
  virtual bool Measure(std::span<const float> bucket, std::span<uint8_t> scratch,
                       std::span<float> side) const = 0;

  // A digit for each of `values`, a part of a bucket that has `side`. The decoder will make
  // table[digit] * scale of it.
  virtual void Quantise(std::span<const float> values, std::span<const float> side,
                        RandomRun random, uint8_t* digits) const = 0;
};

struct BucketScheme {
  std::string spec;  // canonical
  CodecClass codec_class = CodecClass::kBiased;
  BucketFormat format;
  std::shared_ptr<const BucketQuantiser> quantiser;
  // The bound on the NMSE of a bucket of d >= 1 values that grows with d, or none.
  std::function<std::optional<double>(double d)> bound;
  // What Codec::shared_scale gives; with it the codec asks for kIntegerSum.
  std::shared_ptr<const SharedScale> shared_scale = nullptr;
};

std::shared_ptr<const Codec> MakeBucketCodec(BucketScheme scheme);

// The pieces of such a codec. Sizes, errors and bytes are those of Codec.
size_t MaxBucketFrameBytes(const BucketFormat& format, size_t n);
// Side data of all buckets, in order: BucketLayout::buckets() * BucketFormat::side() floats.
Status MeasureBuckets(const BucketScheme& scheme, std::span<const float> values,
                      Workspace& work, std::span<float> side);
// Given `side` the frame has these, and nothing is measured or checked.
Result<size_t> EncodeBuckets(const BucketScheme& scheme, std::span<const float> values,
                             StreamKey key, Workspace& work, std::span<uint8_t> frame,
                             std::span<const float> side = {});

// Keys of spec strings; errors name the codec and say what is valid.

// `bucket`: 1 to `most`, or 0 for the whole message if whole_message. `others` are words for
// errors: what else the codec takes there.
Result<uint32_t> ParseBucketKey(const SpecPart& part, uint32_t fallback, uint32_t most,
                                bool whole_message, std::string_view others = "");
// kRans with |rans, the only modifier of these codecs.
IndexCoding DigitCoding(const Spec& spec);

}  // namespace elastiquant
