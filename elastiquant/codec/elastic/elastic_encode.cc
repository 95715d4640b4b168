#include "elastiquant/codec/elastic/elastic_encode.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/first_error.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/kernels/quantize.h"

namespace elastiquant {
namespace {

// Which kernel serves a format.
enum class Kernel { kUniform, kDithered, kHalving, kLevels };

Kernel KernelOf(const ElasticFormat& format) {
  if (format.rounding == Rounding::kDither) return Kernel::kDithered;
  if (format.family == LevelFamily::kUniform) return Kernel::kUniform;
  const bool halving = format.family == LevelFamily::kExponential && format.p == 0.5f &&
                       format.bits <= kMaxHalvingBits;
  return halving ? Kernel::kHalving : Kernel::kLevels;
}

class ElasticEncoder {
 public:
  ElasticEncoder(const ElasticFormat& format, const LevelTable& table,
                 std::span<const float> values, StreamKey key, Workspace& work,
                 std::span<uint8_t> payload)
      : format_(format),
        table_(table),
        layout_(format, values.size()),
        parts_(format.norm),
        kernel_(KernelOf(format)),
        values_(values),
        keys_(MakeLaneKeys(key)),
        work_(work),
        payload_(payload),
        tiles_(layout_.places(), payload, work.threads() == 1) {}

  Result<size_t> Run() {
    WriteLevels();
    if (layout_.straddles()) {
      format_.tensors.empty() ? WriteWideNorms() : WriteTensorNorms();
      EQ_RETURN_IF_ERROR(error_.status());
    }
    const auto encode = [this](size_t tile, int thread) { EncodeTile(tile, thread); };
    work_.ParallelFor(layout_.tiles(), std::cref(encode));
    EQ_RETURN_IF_ERROR(error_.status());
    return tiles_.Finish();
  }

 private:
  void WriteLevels() {
    const std::span<const float> listed = format_.listed();
    if (listed.empty()) return;
    std::memcpy(payload_.data() + layout_.levels_at(), listed.data(), listed.size_bytes());
  }

  void EncodeTile(size_t tile, int thread) {
    const Piece piece = layout_.Tile(tile);
    const std::span<uint8_t> codes = work_.Scratch(thread, kMaxTile).first(piece.size);
    if (!QuantizeTile(tile, piece, codes)) return;
    // What this thread is likely to take next.
    const size_t next = tile + static_cast<size_t>(work_.threads());
    const float* soon = next < layout_.tiles() ? &values_[layout_.Tile(next).begin] : nullptr;
    const Result<size_t> size = EncodeIndices(format_.coding, codes, format_.bits,
                                              layout_.run(), tiles_.Room(tile), soon);
    if (!size.ok()) return error_.Report(piece.begin, size.status());
    if (format_.coding != IndexCoding::kFixed) tiles_.Wrote(tile, *size);
  }

  bool QuantizeTile(size_t tile, Piece piece, std::span<uint8_t> codes) {
    const size_t end = piece.begin + piece.size;
    for (size_t bucket = layout_.FirstBucket(tile), at = piece.begin; at < end; ++bucket) {
      const Piece part = layout_.Overlap(tile, bucket);
      const float norm = layout_.straddles() ? ReadNorm(bucket) : MeasureNorm(bucket);
      if (!(norm <= LargestNorm(format_))) return false;
      Quantize(part, norm, codes.data() + (part.begin - piece.begin));
      at += part.size;
    }
    return true;
  }

  void Quantize(Piece part, float norm, uint8_t* codes) const {
    if (norm == 0) {
      std::memset(codes, 0, part.size);
      return;
    }
    const float* v = values_.data() + part.begin;
    const RandomRun random{keys_, static_cast<uint32_t>(part.begin)};
    const int bits = format_.bits;
    switch (kernel_) {
      case Kernel::kUniform:
        return QuantizeUniform(v, part.size, random, MakeScaler(norm, UniformTop(bits)), bits,
                               codes);
      case Kernel::kDithered:
        return QuantizeDithered(v, part.size, random, MakeScaler(norm, UniformTop(bits)), bits,
                                codes);
      case Kernel::kHalving:
        return QuantizeHalving(v, part.size, random, MakeScaler(norm, kRelativeTop), bits,
                               codes);
      case Kernel::kLevels:
        return QuantizeLevels(v, part.size, random, MakeScaler(norm, kRelativeTop), table_,
                              bits, codes);
    }
  }

  void WriteTensorNorms() {
    const auto measure = [this](size_t bucket, int) { MeasureNorm(bucket); };
    work_.ParallelFor(layout_.buckets(), std::cref(measure));
  }

  // The norm of a bucket by itself.
  float MeasureNorm(size_t bucket) {
    const Piece piece = layout_.Bucket(bucket);
    const float norm = BucketNorm(format_.norm, values_.subspan(piece.begin, piece.size));
    KeepNorm(bucket, norm);
    return norm;
  }

  // A bucket over several tiles: each tile measures its parts, of at most two buckets, which
  // are then combined in order. kLq looks for the largest value first.
  void WriteWideNorms() {
    const std::span<uint8_t> scratch = work_.Scratch(0, 2 * layout_.tiles() * sizeof(double));
    double* parts = reinterpret_cast<double*>(scratch.data());
    if (parts_.needs_scale()) MeasureWideParts(parts, true);
    MeasureWideParts(parts, false);
    for (size_t b = 0; b < layout_.buckets(); ++b) KeepNorm(b, ReadNorm(b));
  }

  void MeasureWideParts(double* parts, bool largest) {
    const auto measure = [=, this](size_t tile, int) {
      const size_t first = layout_.FirstBucket(tile);
      for (size_t k = 0; k < 2; ++k) {
        const Piece piece = layout_.Overlap(tile, first + k);
        if (piece.size == 0) continue;
        const auto v = values_.subspan(piece.begin, piece.size);
        parts[2 * tile + k] =
            largest ? NormParts::LargestPart(v) : parts_.Part(v, ScaleOf(first + k));
      }
    };
    work_.ParallelFor(layout_.tiles(), std::cref(measure));
    for (size_t b = 0; b < layout_.buckets(); ++b) {
      const Piece piece = layout_.Bucket(b);
      double total = 0;
      for (size_t tile = layout_.FirstTile(b); tile * kMaxTile < piece.begin + piece.size;
           ++tile) {
        const double part = parts[2 * tile + (b - layout_.FirstBucket(tile))];
        total = largest ? NormParts::CombineLargest(total, part) : parts_.Combine(total, part);
      }
      WriteNorm(b, largest ? static_cast<float>(total) : parts_.Finish(total, ScaleOf(b)));
    }
  }

  // The largest value of a wide bucket, kept where its norm goes later on.
  double ScaleOf(size_t bucket) const {
    return parts_.needs_scale() ? static_cast<double>(ReadNorm(bucket)) : 0;
  }

  void KeepNorm(size_t bucket, float norm) {
    if (norm <= LargestNorm(format_)) return WriteNorm(bucket, norm);
    error_.Report(layout_.Bucket(bucket).begin, NormError(bucket, norm));
  }

  Status NormError(size_t bucket, float norm) const {
    const Piece piece = layout_.Bucket(bucket);
    if (std::isnan(norm)) {
      size_t i = piece.begin;
      while (std::isfinite(values_[i])) ++i;
      return NonFinite("the value at coordinate " + std::to_string(i) + " is " +
                       std::to_string(values_[i]));
    }
    return OutOfRange("the norm of bucket " + std::to_string(bucket) + ", coordinates " +
                      std::to_string(piece.begin) + " to " +
                      std::to_string(piece.begin + piece.size - 1) + ", exceeds " +
                      NumberText(LargestNorm(format_)) + ": use " +
                      (format_.norm.kind == NormKind::kLinf ? "rounding=stochastic"
                                                            : "norm=linf or smaller buckets") +
                      ", or scale the values down");
  }

  float ReadNorm(size_t bucket) const {
    float norm;
    std::memcpy(&norm, payload_.data() + layout_.norms_at() + bucket * sizeof(norm),
                sizeof(norm));
    return norm;
  }
  void WriteNorm(size_t bucket, float norm) {
    std::memcpy(payload_.data() + layout_.norms_at() + bucket * sizeof(norm), &norm,
                sizeof(norm));
  }

  const ElasticFormat& format_;
  const LevelTable& table_;
  const ElasticLayout layout_;
  const NormParts parts_;
  const Kernel kernel_;
  const std::span<const float> values_;
  const LaneKeys keys_;
  Workspace& work_;
  const std::span<uint8_t> payload_;
  TileWriter tiles_;
  FirstError error_;
};

}  // namespace

size_t MaxElasticFrameBytes(const ElasticFormat& format, size_t n) {
  const ElasticLayout layout(format, n);
  return FramePayloadOffset(kElasticParameterBytes) + TensorListBytes(format.tensors.size()) +
         layout.places().MaxPayloadBytes();
}

Result<size_t> EncodeElasticFrame(const ElasticFormat& format, const LevelTable& table,
                                  std::span<const float> values, StreamKey key, Workspace& work,
                                  std::span<uint8_t> frame) {
  const std::span<uint8_t> payload = frame.subspan(FramePayloadOffset(kElasticParameterBytes));
  const size_t list = TensorListBytes(format.tensors.size());
  if (list > 0) WriteTensorList(format.tensors, values.size(), payload);
  EQ_ASSIGN_OR_RETURN(
      const size_t size,
      ElasticEncoder(format, table, values, key, work, payload.subspan(list)).Run());
  const auto parameters = WriteElasticParameters(format);
  FrameView view;
  view.codec = CodecId::kElastic;
  view.elements = values.size();
  view.key = key;
  view.parameters = parameters;
  view.flags = list > 0 ? kElasticByTensor : 0;
  view.payload = payload.first(list + size);
  return SealFrame(view, frame);
}

}  // namespace elastiquant
