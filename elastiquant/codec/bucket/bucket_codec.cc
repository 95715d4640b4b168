#include "elastiquant/codec/bucket/bucket_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/first_error.h"
#include "elastiquant/kernels/digits.h"

namespace elastiquant {
namespace {

// Why a bucket could not be measured.
Status WhyNot(std::span<const float> values, size_t bucket, Piece piece) {
  for (size_t i = piece.begin; i < piece.begin + piece.size; ++i) {
    if (std::isfinite(values[i])) continue;
    return NonFinite("the value at coordinate " + std::to_string(i) + " is " +
                     std::to_string(values[i]));
  }
  return OutOfRange("the scale of bucket " + std::to_string(bucket) + ", coordinates " +
                    std::to_string(piece.begin) + " to " +
                    std::to_string(piece.begin + piece.size - 1) +
                    ", exceeds fp32: use smaller buckets or scale the values down");
}

class BucketEncoder {
 public:
  // `given`: side data, or nothing if they are to be measured.
  BucketEncoder(const BucketScheme& scheme, std::span<const float> values,
                std::span<const float> given, StreamKey key, Workspace& work,
                std::span<uint8_t> payload)
      : format_(scheme.format),
        quantiser_(*scheme.quantiser),
        layout_(format_, values.size()),
        values_(values),
        given_(given),
        keys_(MakeLaneKeys(key)),
        work_(work),
        payload_(payload),
        tiles_(layout_.places(), payload, work.threads() == 1) {}

  Result<size_t> Run() {
    WriteTable();
    if (!measures()) {
      std::memcpy(SideOf(0), given_.data(), given_.size_bytes());
    } else if (layout_.wide()) {
      const auto measure = [this](size_t bucket, int thread) {
        const size_t size = layout_.Bucket(bucket).size;
        MeasureBucket(bucket, work_.Scratch(thread, quantiser_.ScratchBytes(size)));
      };
      work_.ParallelFor(layout_.buckets(), std::cref(measure));
      EQ_RETURN_IF_ERROR(error_.status());
    }
    const auto encode = [this](size_t tile, int thread) { EncodeTile(tile, thread); };
    work_.ParallelFor(layout_.tiles(), std::cref(encode));
    EQ_RETURN_IF_ERROR(error_.status());
    return tiles_.Finish();
  }

 private:
  bool coded() const { return format_.coding != IndexCoding::kFixed; }
  bool measures() const { return given_.empty(); }

  void WriteTable() {
    const size_t listed = format_.listed();
    std::memcpy(payload_.data(), format_.table.data() + listed, listed * sizeof(float));
  }

  void EncodeTile(size_t tile, int thread) {
    const Piece piece = layout_.Tile(tile);
    const size_t longest = layout_.wide() ? 0 : std::min<size_t>(layout_.run(), piece.size);
    const std::span<uint8_t> scratch =
        work_.Scratch(thread, kMaxTile + quantiser_.ScratchBytes(longest));
    const std::span<uint8_t> digits = scratch.first(piece.size);
    const size_t end = piece.begin + piece.size;
    for (size_t bucket = layout_.FirstBucket(tile), at = piece.begin; at < end; ++bucket) {
      if (measures() && !layout_.wide() && !MeasureBucket(bucket, scratch.subspan(kMaxTile))) {
        return;
      }
      const Piece part = layout_.Overlap(tile, bucket);
      Quantise(bucket, part, digits.data() + (at - piece.begin));
      at += part.size;
    }
    PackTile(tile, digits);
  }

  bool MeasureBucket(size_t bucket, std::span<uint8_t> scratch) {
    const Piece piece = layout_.Bucket(bucket);
    std::array<float, 256> side;
    const auto v = values_.subspan(piece.begin, piece.size);
    if (!quantiser_.Measure(v, scratch, {side.data(), format_.side()})) {
      error_.Report(piece.begin, WhyNot(values_, bucket, piece));
      return false;
    }
    std::memcpy(SideOf(bucket), side.data(), format_.side() * sizeof(float));
    return true;
  }

  void Quantise(size_t bucket, Piece part, uint8_t* digits) const {
    std::array<float, 256> side;
    std::memcpy(side.data(), SideOf(bucket), format_.side() * sizeof(float));
    quantiser_.Quantise(values_.subspan(part.begin, part.size), {side.data(), format_.side()},
                        {keys_, static_cast<uint32_t>(part.begin)}, digits);
  }

  void PackTile(size_t tile, std::span<const uint8_t> digits) {
    const auto out = tiles_.Room(tile);
    if (!coded()) {
      PackDigits(digits.data(), digits.size(), format_.radix, out.data());
      return;
    }
    const Result<size_t> size =
        EncodeIndices(format_.coding, digits, format_.bits(), layout_.run(), out);
    if (!size.ok()) return error_.Report(tile, size.status());
    tiles_.Wrote(tile, *size);
  }

  uint8_t* SideOf(size_t bucket) const {
    return payload_.data() + layout_.side_at() + bucket * format_.side() * sizeof(float);
  }

  const BucketFormat& format_;
  const BucketQuantiser& quantiser_;
  const BucketLayout layout_;
  const std::span<const float> values_, given_;
  const LaneKeys keys_;
  Workspace& work_;
  const std::span<uint8_t> payload_;
  TileWriter tiles_;
  FirstError error_;
};

class BucketCodec : public Codec {
 public:
  explicit BucketCodec(BucketScheme scheme) : scheme_(std::move(scheme)) {}

  std::string spec() const override { return scheme_.spec; }
  CodecClass codec_class() const override { return scheme_.codec_class; }

  std::optional<double> NmseBound(size_t n) const override {
    if (!scheme_.bound) return std::nullopt;
    const size_t bucket = scheme_.format.bucket;
    const size_t d = bucket == 0 ? n : std::min(bucket, n);
    return scheme_.bound(static_cast<double>(std::max<size_t>(d, 1)));
  }

  size_t granule() const override { return scheme_.format.bucket; }

  size_t MaxFrameBytes(size_t n) const override {
    return MaxBucketFrameBytes(scheme_.format, n);
  }

  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    return EncodeBuckets(scheme_, values, key, work, frame);
  }

  Exchange exchange() const override {
    return scheme_.shared_scale ? Exchange::kIntegerSum : Exchange::kTwoPhase;
  }
  const SharedScale* shared_scale() const override { return scheme_.shared_scale.get(); }

 private:
  const BucketScheme scheme_;
};

}  // namespace

std::shared_ptr<const Codec> MakeBucketCodec(BucketScheme scheme) {
  return std::make_shared<BucketCodec>(std::move(scheme));
}

size_t MaxBucketFrameBytes(const BucketFormat& format, size_t n) {
  const BucketLayout layout(format, n);
  return FramePayloadOffset(kBucketParameterBytes) + layout.places().MaxPayloadBytes();
}

Status MeasureBuckets(const BucketScheme& scheme, std::span<const float> values,
                      Workspace& work, std::span<float> side) {
  const BucketLayout layout(scheme.format, values.size());
  const size_t each = scheme.format.side();
  FirstError error;
  const auto measure = [&](size_t bucket, int thread) {
    const Piece piece = layout.Bucket(bucket);
    const auto scratch = work.Scratch(thread, scheme.quantiser->ScratchBytes(piece.size));
    if (!scheme.quantiser->Measure(values.subspan(piece.begin, piece.size), scratch,
                                   side.subspan(bucket * each, each))) {
      error.Report(piece.begin, WhyNot(values, bucket, piece));
    }
  };
  work.ParallelFor(layout.buckets(), std::cref(measure));
  return error.status();
}

Result<size_t> EncodeBuckets(const BucketScheme& scheme, std::span<const float> values,
                             StreamKey key, Workspace& work, std::span<uint8_t> frame,
                             std::span<const float> side) {
  EQ_RETURN_IF_ERROR(CheckEncodeSizes(
      values.size(), MaxBucketFrameBytes(scheme.format, values.size()), frame.size()));
  const auto payload = frame.subspan(FramePayloadOffset(kBucketParameterBytes));
  EQ_ASSIGN_OR_RETURN(const size_t size,
                      BucketEncoder(scheme, values, side, key, work, payload).Run());
  const auto parameters = WriteBucketParameters(scheme.format);
  FrameView view;
  view.codec = scheme.format.codec;
  view.elements = values.size();
  view.key = key;
  view.parameters = parameters;
  view.payload = payload.first(size);
  return SealFrame(view, frame);
}

Result<uint32_t> ParseBucketKey(const SpecPart& part, uint32_t fallback, uint32_t most,
                                bool whole_message, std::string_view others) {
  const std::string text(SpecValue(part, "bucket", std::to_string(fallback)));
  uint32_t bucket = 0;
  if (ParseNumber(std::string_view(text), &bucket) && bucket <= most &&
      (bucket > 0 || whole_message)) {
    return bucket;
  }
  return BadKey(part, "bucket", text,
                "1 to " + std::to_string(most) +
                    (whole_message ? ", or 0 for one bucket of the whole message" : "") +
                    std::string(others));
}

IndexCoding DigitCoding(const Spec& spec) {
  return spec.modifiers.empty() ? IndexCoding::kFixed : IndexCoding::kRans;
}

}  // namespace elastiquant
