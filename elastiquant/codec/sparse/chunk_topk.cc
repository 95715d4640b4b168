// The largest magnitudes of each chunk, as SparseLoCo (Sarfi et al., "Communication Efficient
// LLM Pre-training with SparseLoCo", arXiv 2508.15706) and DeMo (Peng, Quesnelle and Kingma,
// arXiv 2411.19870) send them: chunks are blocks of 64x64 of matrices, or 4096 values as they
// stand.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/first_error.h"
#include "elastiquant/codec/message_shape.h"
#include "elastiquant/codec/sparse/chunk_decode.h"
#include "elastiquant/codec/sparse/chunk_format.h"
#include "elastiquant/codec/sparse/chunk_quantize.h"
#include "elastiquant/codec/sparse/sparse_codec.h"
#include "elastiquant/coding/chunk_positions.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/sparse/largest.h"

namespace elastiquant {
namespace {

// Writes the payload of one message.
class ChunkEncoder {
 public:
  ChunkEncoder(const ChunkFormat& format, const ChunkGeometry& geometry,
               std::span<const float> values, Workspace& work)
      : format_(format), geometry_(geometry), values_(values), work_(work) {
    const size_t tiles = geometry.tiles(), sums = tiles * format.levels();
    uint8_t* const bytes =
        work.SharedScratch(Workspace::kCodecSlot,
                           sums * sizeof(LevelSums) + tiles * sizeof(uint16_t))
            .data();
    sums_ = {reinterpret_cast<LevelSums*>(bytes), sums};
    largest_ = {reinterpret_cast<uint16_t*>(bytes + sums * sizeof(LevelSums)), tiles};
    std::ranges::fill(sums_, LevelSums());
    std::ranges::fill(largest_, uint16_t{0});
  }

  Result<size_t> Run(std::span<uint8_t> payload) {
    const TilePlaces places = ChunkPlaces(format_, geometry_);
    TileWriter writer(places, payload, work_.threads() == 1);
    const auto tile = [&](size_t t, int thread) {
      EQ_ASSIGN_OR_RETURN(const size_t size, Tile(t, thread, writer.Room(t)));
      writer.Wrote(t, size);
      return Status::Ok();
    };
    Status status = TryParallelFor(work_, geometry_.tiles(), tile);
    if (!status.ok()) {
      // What is not finite is among the kept, but need not be the first of its chunk there.
      EQ_RETURN_IF_ERROR(CheckFinite(values_, work_));
      return status;
    }
    EQ_RETURN_IF_ERROR(WriteLevels(payload.data() + format_.levels_at()));
    return writer.Finish();
  }

 private:
  std::span<LevelSums> SumsOf(size_t t) const {
    return sums_.subspan(t * format_.levels(), format_.levels());
  }

  Result<size_t> Tile(size_t t, int thread, std::span<uint8_t> out) const {
    ChunkBuffers buffers(format_, geometry_, thread, work_);
    ChunkTile& tile = buffers.tile;
    tile.counts = tile.counts.first(geometry_.ChunksOf(t));
    tile.scales = tile.scales.first(geometry_.ChunksOf(t));
    size_t size = 0, number = 0;
    uint32_t guess = 1;
    bool full = true;
    geometry_.VisitTile(t, [&](const Chunk& chunk) {
      const size_t count = Gather(chunk, size, &guess, &buffers);
      full &= count == chunk.kept;
      tile.counts[number++] = static_cast<uint16_t>(count);
      size += count;
    });
    if (AbsMaxBits(buffers.values.data(), size) >= kNonFiniteBits) {
      return NonFinite("a value is NaN or infinite");
    }
    tile.positions = tile.positions.first(size);
    tile.values = buffers.values.first(size);
    tile.codes = tile.codes.first(size);
    if (format_.bits != kExactChunkBits) EQ_RETURN_IF_ERROR(Quantize(t, tile));
    return WriteChunkTile(tile, format_.bits, full, buffers.scratch, out);
  }

  // What is kept of a chunk goes behind the `size` values of those before it.
  size_t Gather(const Chunk& chunk, size_t size, uint32_t* guess, ChunkBuffers* buffers) const {
    const FloatRows rows{values_.data() + chunk.begin, chunk.rows, chunk.width, chunk.stride};
    uint16_t* const positions = buffers->tile.positions.data() + size;
    float* const kept = buffers->values.data() + size;
    const size_t count =
        SelectLargest(rows, chunk.kept, guess, buffers->candidates.data(), positions);
    for (size_t i = 0; i < count; ++i) kept[i] = rows.At(positions[i]);
    return count;
  }

  Status Quantize(size_t t, const ChunkTile& tile) const {
    size_t begin = 0;
    for (size_t c = 0; c < tile.counts.size(); ++c) {
      const std::span<const float> kept = tile.values.subspan(begin, tile.counts[c]);
      tile.scales[c] = 0;
      if (kept.empty()) continue;
      EQ_ASSIGN_OR_RETURN(tile.scales[c], ChunkScale(kept));
      QuantizeChunk(kept, tile.scales[c], format_.bits, tile.codes.data() + begin, SumsOf(t));
      largest_[t] = std::max(largest_[t], tile.scales[c]);
      begin += kept.size();
    }
    return Status::Ok();
  }

  // In the order of the tiles, whatever the threads were.
  Status WriteLevels(uint8_t* out) const {
    if (format_.bits == kExactChunkBits) return Status::Ok();
    float largest = 0;
    for (size_t level = 0; level < format_.levels(); ++level) {
      LevelSums sums;
      for (size_t t = 0; t < geometry_.tiles(); ++t) {
        sums.products += SumsOf(t)[level].products;
        sums.squares += SumsOf(t)[level].squares;
      }
      const float value = LevelOf(sums);
      largest = std::max(largest, value);
      std::memcpy(out + level * sizeof(value), &value, sizeof(value));
    }
    const float scale = FromChunkScale(*std::ranges::max_element(largest_));
    if (std::isfinite(scale * largest)) return Status::Ok();
    return OutOfRange("a value near " + std::to_string(scale) +
                      " exceeds what few bits can hold; use bits=exact");
  }

  const ChunkFormat& format_;
  const ChunkGeometry& geometry_;
  const std::span<const float> values_;
  Workspace& work_;
  std::span<LevelSums> sums_;    // of each tile, those of each level
  std::span<uint16_t> largest_;  // of each tile, the largest scale
};

// The runs of a message of known tensors.
struct ChunkShape {
  std::vector<ChunkRun> runs;
  std::vector<PlacedRun> placed;
  size_t elements = 0;
};

class ChunkTopKCodec : public Codec {
 public:
  // `shape` may be null.
  ChunkTopKCodec(const ChunkRule& rule, int bits, std::shared_ptr<const ChunkShape> shape)
      : rule_(rule), bits_(bits), shape_(std::move(shape)) {}

  std::string spec() const override {
    return "chunktopk:chunk=" + std::to_string(rule_.chunk) +
           ",k=" + std::to_string(rule_.kept) +
           ",bits=" + (bits_ == kExactChunkBits ? "exact" : std::to_string(bits_));
  }
  CodecClass codec_class() const override { return CodecClass::kContractive; }
  // What a chunk drops is at most 1 - k/chunk of its squares, and what it keeps has an error of
  // its own.
  std::optional<double> NmseBound(size_t n) const override {
    if (n == 0) return 0;
    const double part = static_cast<double>(rule_.kept) / static_cast<double>(rule_.chunk);
    return 1 - part * (bits_ == kExactChunkBits ? 1 : 1 - ChunkValueError(rule_.kept));
  }
  // A mean of sparse messages is less sparse than each, and would have to be cut down again.
  Exchange exchange() const override {
    return bits_ == kExactChunkBits ? Exchange::kSparse : Exchange::kAllGather;
  }

  size_t MaxFrameBytes(size_t n) const override {
    const size_t front = FramePayloadOffset(kChunkParameterBytes);
    PlacedRun single;
    const auto runs = RunsFor(n, &single);
    if (!runs.ok() || n == 0) return front;  // nothing will be encoded
    return front + ChunkPlaces(Format(), ChunkGeometry(rule_, *runs)).MaxPayloadBytes();
  }

  Result<size_t> Encode(std::span<const float> values, StreamKey key, Workspace& work,
                        std::span<uint8_t> frame) const override {
    const size_t n = values.size();
    PlacedRun single;
    EQ_ASSIGN_OR_RETURN(const auto runs, RunsFor(n, &single));
    EQ_RETURN_IF_ERROR(CheckEncodeSizes(n, MaxFrameBytes(n), frame.size()));
    const ChunkFormat format = Format();
    const std::span<uint8_t> payload = frame.subspan(FramePayloadOffset(kChunkParameterBytes));
    size_t size = 0;
    if (n > 0) {
      if (format.runs > 0) std::memcpy(payload.data(), shape_->runs.data(), format.levels_at());
      const ChunkGeometry geometry(rule_, runs);
      EQ_ASSIGN_OR_RETURN(size, ChunkEncoder(format, geometry, values, work).Run(payload));
    }
    const auto parameters = WriteChunkParameters(format);
    FrameView view;
    view.codec = CodecId::kChunks;
    view.elements = n;
    view.key = key;
    view.parameters = parameters;
    view.payload = payload.first(size);
    return SealFrame(view, frame);
  }

  Result<std::shared_ptr<const Codec>> WithShapes(
      std::span<const TensorShape> shapes) const override {
    EQ_ASSIGN_OR_RETURN(const MessageShape message, MessageShape::Of(shapes));
    auto shape = std::make_shared<ChunkShape>();
    shape->elements = message.elements();
    shape->runs = RunsOf(shapes, rule_);
    shape->placed.resize(shape->runs.size());
    EQ_RETURN_IF_ERROR(PlaceRuns(shape->runs, rule_, shape->elements, shape->placed));
    return {std::make_shared<ChunkTopKCodec>(rule_, bits_, std::move(shape))};
  }

 private:
  // A single run of values as they stand goes without saying.
  ChunkFormat Format() const {
    const bool listed = shape_ && (shape_->runs.size() > 1 ||
                                   (shape_->runs.size() == 1 && shape_->runs[0].cols > 0));
    return {bits_, rule_, listed ? static_cast<uint32_t>(shape_->runs.size()) : 0};
  }

  // `single` is made the only run of a message of no known shape.
  Result<std::span<const PlacedRun>> RunsFor(size_t n, PlacedRun* single) const {
    if (shape_ && shape_->elements != n) {
      return InvalidArgument("codec '" + spec() + "' was given the shapes of tensors with " +
                             std::to_string(shape_->elements) + " values, but a message of " +
                             std::to_string(n));
    }
    if (shape_) return std::span<const PlacedRun>(shape_->placed);
    *single = WholeRun(n);
    return std::span<const PlacedRun>(single, n > 0 ? 1 : 0);
  }

  const ChunkRule rule_;
  const int bits_;
  const std::shared_ptr<const ChunkShape> shape_;
};

Result<std::shared_ptr<const Codec>> MakeChunkTopK(const Spec& spec) {
  ChunkRule rule;
  const std::string_view chunk = SpecValue(spec.codec, "chunk", "4096");
  if (!ParseNumber(chunk, &rule.chunk) || rule.chunk < 1 || rule.chunk > kMaxChunk) {
    return BadKey(spec.codec, "chunk", chunk, "a whole number from 1 to 32768");
  }
  const std::string_view kept = SpecValue(spec.codec, "k", "64");
  if (!ParseNumber(kept, &rule.kept) || rule.kept < 1 || rule.kept > rule.chunk) {
    return BadKey(spec.codec, "k", kept, "a whole number from 1 to that of chunk");
  }
  const std::string_view bits = SpecValue(spec.codec, "bits", "2");
  int width = kExactChunkBits;
  if (bits != "exact" && (!ParseNumber(bits, &width) || width < 1 || width > kMostChunkBits)) {
    return BadKey(spec.codec, "bits", bits, "1 to 8, or exact");
  }
  return {std::make_shared<ChunkTopKCodec>(rule, width, nullptr)};
}

}  // namespace

const CodecFamily& ChunkTopKFamily() {
  static const CodecFamily family{
      CodecId::kChunks,
      {"chunktopk",
       "chunktopk:chunk=4096,k=64,bits=2",
       CodecClass::kContractive,
       "the largest magnitudes of each chunk, as SparseLoCo and DeMo send them; wants |ef",
       {{"chunk", "4096",
         "1 to 32768: values of a chunk; if it is s * s, one of a matrix of "
         "such sides is a block of s x s"},
        {"k", "64", "1 to chunk: how many of a chunk are kept"},
        {"bits", "2", "1 to 8: of a kept value, its sign included; or exact"}},
       {}},
      {"chunktopk:chunk=4096,k=64,bits=2", "chunktopk:chunk=64,k=7,bits=1",
       "chunktopk:chunk=100,k=100,bits=4", "chunktopk:chunk=256,k=16,bits=8",
       "chunktopk:chunk=4096,k=32,bits=exact", "chunktopk:chunk=1,k=1,bits=3"},
      MakeChunkTopK,
      DecodeChunks};
  return family;
}

}  // namespace elastiquant
