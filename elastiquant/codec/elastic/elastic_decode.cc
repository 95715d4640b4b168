#include "elastiquant/codec/elastic/elastic_decode.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "elastiquant/codec/elastic/elastic_format.h"
#include "elastiquant/codec/first_error.h"
#include "elastiquant/kernels/dequantize.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

class ElasticDecoder {
 public:
  ElasticDecoder(const ElasticFormat& format, const FrameView& frame, const DecodeSink& sink,
                 Workspace& work)
      : format_(format),
        layout_(format, frame.elements),
        payload_(frame.payload),
        tiles_(layout_.places(), frame.payload),
        keys_(MakeLaneKeys(frame.key)),
        sink_(sink),
        work_(work) {
    FillValueTable(format.levels.span(), format.bits, &table_);
    largest_level_ = std::bit_cast<float>(AbsMaxBits(table_.value.data(), table_.value.size()));
  }

  Status Run() {
    EQ_RETURN_IF_ERROR(tiles_.Check(work_));
    return TryParallelFor(work_, layout_.tiles(),
                          [this](size_t tile, int thread) { return DecodeTile(tile, thread); });
  }

 private:
  Status DecodeTile(size_t tile, int thread) {
    const Piece piece = layout_.Tile(tile);
    const std::span<uint8_t> codes = work_.Scratch(thread, kMaxTile).first(piece.size);
    EQ_ASSIGN_OR_RETURN(const std::span<const uint8_t> in, tiles_.Tile(tile));
    EQ_RETURN_IF_ERROR(DecodeIndices(format_.coding, in, format_.bits, layout_.run(), codes,
                                     sink_.Soon(piece.begin)));
    const size_t levels = format_.levels.count;
    if (levels < LevelsOfBits(format_.bits) &&
        MaxIndex(codes.data(), codes.size(), format_.bits) >= levels) {
      return BadPayload("a code in tile " + std::to_string(tile) + " names no level");
    }
    return DequantizeTile(tile, piece, codes);
  }

  Status DequantizeTile(size_t tile, Piece piece, std::span<const uint8_t> codes) {
    const size_t end = piece.begin + piece.size;
    for (size_t bucket = layout_.FirstBucket(tile), at = piece.begin; at < end; ++bucket) {
      const Piece part = layout_.Overlap(tile, bucket);
      const float norm = ReadNorm(bucket);
      if (!(norm >= 0 && norm <= LargestNorm(format_))) {
        return BadPayload("the norm of bucket " + std::to_string(bucket) + " is not a norm");
      }
      if (!Dequantize(part, norm, codes.data() + (part.begin - piece.begin))) {
        return BadPayload("the values of bucket " + std::to_string(bucket) + " are not finite");
      }
      at += part.size;
    }
    return Status::Ok();
  }

  // False if a value might not be finite.
  bool Dequantize(Piece part, float norm, const uint8_t* codes) {
    if (format_.rounding == Rounding::kStochastic) {
      float* const out = sink_.Room(part.begin, norm * largest_level_);
      if (out == nullptr) return false;
      DequantizeLevels(codes, part.size, table_, norm, sink_.how(), out);
      return true;
    }
    const float steps = static_cast<float>(UniformSteps(format_.bits));
    const float step = norm / steps;
    float* const out = sink_.Room(part.begin, step * (steps + 0.5f));
    if (out == nullptr) return false;
    const RandomRun random{keys_, static_cast<uint32_t>(part.begin)};
    DequantizeDithered(codes, part.size, random, step, format_.bits, sink_.how(), out);
    return true;
  }

  float ReadNorm(size_t bucket) const {
    float norm;
    std::memcpy(&norm, payload_.data() + layout_.norms_at() + bucket * sizeof(norm),
                sizeof(norm));
    return norm;
  }

  const ElasticFormat& format_;
  const ElasticLayout layout_;
  const std::span<const uint8_t> payload_;
  TileReader tiles_;
  const LaneKeys keys_;
  const DecodeSink& sink_;
  Workspace& work_;
  ValueTable table_;
  float largest_level_;
};

// A frame's parameters and levels, and what follows its list of tensors.
struct Parts {
  ElasticFormat format;
  FrameView rest;
  size_t tensors = 0;
};
Result<Parts> TakeApart(const FrameView& frame) {
  if ((frame.flags & ~kElasticByTensor) != 0) {
    return BadParameters("elastic has no such flags");
  }
  Parts parts;
  parts.rest = frame;
  if (frame.flags == kElasticByTensor) {
    EQ_ASSIGN_OR_RETURN(parts.tensors, ReadTensorCount(frame.payload, frame.elements));
    parts.rest.payload = frame.payload.subspan(TensorListBytes(parts.tensors));
  }
  EQ_ASSIGN_OR_RETURN(parts.format,
                      ReadElasticParameters(frame.parameters, parts.rest.payload));
  return parts;
}

}  // namespace

Status DecodeElastic(const FrameView& frame, const DecodeSink& sink, Workspace& work) {
  EQ_ASSIGN_OR_RETURN(const Parts parts, TakeApart(frame));
  ElasticFormat format = parts.format;
  if (parts.tensors > 0) {
    const auto scratch =
        work.SharedScratch(Workspace::kCodecSlot, parts.tensors * sizeof(TensorStart));
    const std::span<TensorStart> starts(reinterpret_cast<TensorStart*>(scratch.data()),
                                        parts.tensors);
    EQ_RETURN_IF_ERROR(ReadTensorList(frame.payload, frame.elements, format.bucket, starts));
    format.tensors = starts;
  }
  return ElasticDecoder(format, parts.rest, sink, work).Run();
}

std::optional<ElasticFormat> ListedFormat(std::span<const uint8_t> frame) {
  const Result<FrameView> view = ParseFrame(frame);
  if (!view.ok() || view->codec != CodecId::kElastic) return std::nullopt;
  const Result<Parts> parts = TakeApart(*view);
  if (!parts.ok() || !IsListed(parts->format.family)) return std::nullopt;
  return parts->format;
}

}  // namespace elastiquant
