#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "elastiquant/codec/bucket/bucket_codes.h"
#include "elastiquant/codec/first_error.h"
#include "elastiquant/kernels/dequantize.h"
#include "elastiquant/kernels/digits.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

struct BucketFields {
  uint8_t top, coding, family, reserved;
  uint32_t bucket;
  float p;
};
static_assert(sizeof(BucketFields) == kBucketParameterBytes);

// The base that a codec's digits must have; 0 for any.
int FixedRadix(CodecId codec) {
  return codec == CodecId::kTernary ? 3 : codec == CodecId::kSign ? 2 : 0;
}

Status CheckFields(CodecId codec, const BucketFields& f) {
  const int radix = f.top + 1;
  // Sums of digits (shared_scale.h) have any base above 2, and are never packed.
  const bool any = codec == CodecId::kInnovation && f.coding != 0 && radix > 2;
  if (!any && !IsDigitBase(radix)) {
    return BadParameters("the base of the digits is none in use");
  }
  if (FixedRadix(codec) != 0 && radix != FixedRadix(codec)) {
    return BadParameters("the base of the digits does not fit the codec");
  }
  if (f.coding != 0 && (f.coding != static_cast<uint8_t>(IndexCoding::kRans) || radix == 2)) {
    return BadParameters("the index coding does not go with such digits");
  }
  if (f.reserved != 0) return BadParameters("a reserved byte is not zero");
  if (codec == CodecId::kZeroless) {
    if (f.family > 2) return BadParameters("the level family is unknown");
    if (radix % 2 != 0) return BadParameters("the base of the digits is not even");
    const bool exponential = f.family == static_cast<uint8_t>(ZerolessLevels::kExponential);
    if (exponential ? !(f.p > 0 && f.p < 1) : f.p != 0) {
      return BadParameters("p does not fit the level family");
    }
    return Status::Ok();
  }
  if (f.family != 0 || f.p != 0) return BadParameters("level family or p is not zero");
  return Status::Ok();
}

Result<BucketFormat> ReadFormat(const FrameView& frame) {
  if (frame.flags != 0) return BadParameters("this codec has no flags");
  BucketFields f;
  if (frame.parameters.size() != sizeof(f)) {
    return BadParameters("there are " + std::to_string(frame.parameters.size()) +
                         " bytes, not " + std::to_string(sizeof(f)));
  }
  std::memcpy(&f, frame.parameters.data(), sizeof(f));
  EQ_RETURN_IF_ERROR(CheckFields(frame.codec, f));
  BucketFormat format;
  format.codec = frame.codec;
  format.radix = f.top + 1;
  format.coding = static_cast<IndexCoding>(f.coding);
  format.bucket = f.bucket;
  format.family = static_cast<ZerolessLevels>(f.family);
  format.p = f.p;
  const size_t listed = format.listed();
  std::array<float, 128> upper;
  if (frame.payload.size() < listed * sizeof(float)) {
    return BadPayload("it ends inside the level list");
  }
  std::memcpy(upper.data(), frame.payload.data(), listed * sizeof(float));
  const Status filled = FillTable({upper.data(), listed}, &format);
  if (!filled.ok()) return BadParameters(filled.message());
  return format;
}

// The largest magnitude; not finite if one of the values is not.
float LargestOf(const float* values, size_t n) {
  return std::bit_cast<float>(AbsMaxBits(values, n));
}

class BucketDecoder {
 public:
  // `expected`: the scales that the frame must have, to be left out of what is decoded.
  BucketDecoder(const BucketFormat& format, const FrameView& frame, const DecodeSink& sink,
                Workspace& work, std::optional<std::span<const float>> expected = std::nullopt)
      : format_(format),
        layout_(format, frame.elements),
        payload_(frame.payload),
        tiles_(layout_.places(), frame.payload),
        sink_(sink),
        expected_(expected),
        largest_digit_(LargestOf(format.table.data(), format.table.size())),
        work_(work) {}

  Status Run() {
    EQ_RETURN_IF_ERROR(CheckSize());
    return TryParallelFor(work_, layout_.tiles(),
                          [this](size_t tile, int thread) { return DecodeTile(tile, thread); });
  }

 private:
  bool coded() const { return format_.coding != IndexCoding::kFixed; }

  Status CheckSize() {
    if (expected_ && expected_->size() != layout_.buckets()) {
      return BadPayload("it has " + std::to_string(layout_.buckets()) + " scales, not " +
                        std::to_string(expected_->size()));
    }
    return tiles_.Check(work_);
  }

  Status DecodeTile(size_t tile, int thread) {
    const Piece piece = layout_.Tile(tile);
    const std::span<uint8_t> digits = work_.Scratch(thread, kMaxTile).first(piece.size);
    EQ_RETURN_IF_ERROR(ReadDigits(tile, digits, sink_.Soon(piece.begin)));
    const size_t end = piece.begin + piece.size;
    for (size_t bucket = layout_.FirstBucket(tile), at = piece.begin; at < end; ++bucket) {
      const Piece part = layout_.Overlap(tile, bucket);
      EQ_RETURN_IF_ERROR(DequantizePart(bucket, part, digits.data() + (at - piece.begin)));
      at += part.size;
    }
    return Status::Ok();
  }

  Status ReadDigits(size_t tile, std::span<uint8_t> digits, const float* soon) const {
    const auto of_tile = [tile] { return " of tile " + std::to_string(tile); };
    EQ_ASSIGN_OR_RETURN(const std::span<const uint8_t> in, tiles_.Tile(tile));
    if (!coded()) {
      if (UnpackDigits(in.data(), digits.size(), format_.radix, digits.data())) {
        return Status::Ok();
      }
      return BadPayload("a group of digits" + of_tile() + " is too large or its filling not 0");
    }
    EQ_RETURN_IF_ERROR(
        DecodeIndices(format_.coding, in, format_.bits(), layout_.run(), digits, soon));
    uint8_t largest = 0;
    for (const uint8_t digit : digits) largest = std::max(largest, digit);
    if (largest < format_.radix) return Status::Ok();
    return BadPayload("a digit" + of_tile() + " is not below the base");
  }

  Status DequantizePart(size_t bucket, Piece part, const uint8_t* digits) {
    const size_t count = format_.side();
    alignas(64) float side[256];
    std::memcpy(side, payload_.data() + layout_.side_at() + bucket * count * sizeof(float),
                count * sizeof(float));
    const bool levels = format_.codec == CodecId::kLevels;
    const float scale = levels || expected_ ? 1 : side[0];
    // Levels have any sign; a scale is a norm, whether values are multiplied by it or not.
    float* const out =
        sink_.Room(part.begin, levels ? LargestOf(side, count) : scale * largest_digit_);
    if (out == nullptr || !(levels || (side[0] >= 0 && std::isfinite(side[0])))) {
      return BadPayload("the levels or scale of bucket " + std::to_string(bucket));
    }
    if (expected_ && side[0] != (*expected_)[bucket]) {
      return BadPayload("the scale of bucket " + std::to_string(bucket) +
                        " is not the shared one");
    }
    if (levels) std::fill(side + count, side + std::max<size_t>(count, 16), 0.0f);
    DequantizeDigits(digits, part.size, levels ? side : format_.table.data(),
                     static_cast<size_t>(format_.radix), scale, sink_.how(), out);
    return Status::Ok();
  }

  const BucketFormat& format_;
  const BucketLayout layout_;
  const std::span<const uint8_t> payload_;
  TileReader tiles_;
  const DecodeSink& sink_;
  const std::optional<std::span<const float>> expected_;
  const float largest_digit_;
  Workspace& work_;
};

}  // namespace

std::array<uint8_t, kBucketParameterBytes> WriteBucketParameters(const BucketFormat& format) {
  BucketFields f{};
  f.top = static_cast<uint8_t>(format.radix - 1);
  f.coding = static_cast<uint8_t>(format.coding);
  f.family = static_cast<uint8_t>(format.family);
  f.bucket = format.bucket;
  f.p = format.p;
  std::array<uint8_t, kBucketParameterBytes> bytes;
  std::memcpy(bytes.data(), &f, sizeof(f));
  return bytes;
}

Status DecodeBucketCodes(const FrameView& frame, const DecodeSink& sink, Workspace& work) {
  EQ_ASSIGN_OR_RETURN(const BucketFormat format, ReadFormat(frame));
  return BucketDecoder(format, frame, sink, work).Run();
}

Status AddUnscaled(const FrameView& frame, std::span<const float> scales, Workspace& work,
                   std::span<float> sums) {
  EQ_ASSIGN_OR_RETURN(const BucketFormat format, ReadFormat(frame));
  const DecodeSink sink(sums, {.add = true, .weight = 1});
  return BucketDecoder(format, frame, sink, work, scales).Run();
}

}  // namespace elastiquant
