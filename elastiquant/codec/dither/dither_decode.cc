#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "elastiquant/codec/dither/dither_code.h"
#include "elastiquant/codec/first_error.h"
#include "elastiquant/kernels/convert.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/rans/rans_kernels.h"

namespace elastiquant {
namespace {

// No index of a frame is larger: 31 and 21 raw bits of the last class, or an escaped one, which
// is below 2^24 but for the raw bits. With half a step more it is still this as a float.
constexpr float kMostIndex = 0x1p26f;

class TileDecoder {
 public:
  TileDecoder(const DitherFormat& format, LaneKeys keys, const DecodeSink& sink)
      : format_(format),
        model_(GetDitherModel(format.density, format.phase)),
        deltas_(GetDitherModel(DitherDensity::kLaplace, kNeutralPhase)),
        keys_(keys),
        sink_(sink),
        to_{sink.how().add, sink.how().weight},
        most_(format.step * kMostIndex) {}

  // Adds the coordinates of blocks that are not zero to *dithered.
  Status Run(std::span<const uint8_t> in, size_t begin, size_t size, size_t* dithered) {
    if (!in.empty() && in[0] == kDitherRawTile) return CopyValues(in, begin, size);
    EQ_RETURN_IF_ERROR(ReadFront(in));
    const size_t blocks = DitherBlocks(size);
    for (size_t group = 0; group < blocks; group += kDitherGroup) {
      const size_t count = std::min(kDitherGroup, blocks - group);
      uint8_t classes[kDitherGroup];
      EQ_RETURN_IF_ERROR(ReadClasses(count, classes));
      const size_t at = group * kDitherBlock;
      EQ_RETURN_IF_ERROR(DecodeGroup(classes, count, begin + at, size - at, dithered));
    }
    if (reader_.words != reader_.bytes) return BadPayload("words and bytes do not meet");
    for (size_t s = 0; s < reader_.lanes; ++s) {
      if (reader_.state(s) != kRansLow) return BadPayload("a final state is wrong");
    }
    return Status::Ok();
  }

 private:
  Status CopyValues(std::span<const uint8_t> in, size_t begin, size_t size) const {
    if (in.size() != kDitherRawTileHeader + size * sizeof(float)) {
      return BadPayload("a tile of plain values has another size");
    }
    const uint8_t* const from = in.data() + kDitherRawTileHeader;
    const auto unpack = [&](float* out) {
      return to_.add ? UnpackAddFp32(from, size, to_.weight, out) : UnpackFp32(from, size, out);
    };
    return sink_.PutChecked(begin, unpack) ? Status::Ok() : BadPayload("a value is not finite");
  }

  Status ReadFront(std::span<const uint8_t> in) {
    if (in.size() < kDitherTileHeader) return BadPayload("a tile ends before its states");
    const unsigned log = in[0];
    if (log > 7) return BadPayload("a tile has too many states");
    reader_.lanes = size_t{1} << log;
    delta_class_ = in[1];
    previous_ = in[2];
    if (delta_class_ < 1 || delta_class_ >= kDitherClasses || previous_ >= kDitherClasses) {
      return BadPayload("a class is unknown");
    }
    const size_t states = reader_.lanes * sizeof(uint32_t);
    if (in.size() - kDitherTileHeader < states) {
      return BadPayload("a tile ends before its states");
    }
    for (size_t s = 0; s < reader_.lanes; ++s) {
      uint32_t state;
      std::memcpy(&state, in.data() + kDitherTileHeader + 4 * s, sizeof(state));
      if (state < kRansLow) return BadPayload("a state is too small");
      reader_.set_state(s, state);
    }
    reader_.words = in.data() + kDitherTileHeader + states;
    reader_.bytes = in.data() + in.size();
    return Status::Ok();
  }

  Status ReadClasses(size_t count, uint8_t* classes) {
    int32_t deltas[kDitherBlock];
    for (size_t b = 0; b < count; b += kDitherBlock) {
      const size_t length = std::min(kDitherBlock, count - b);
      if (!DecodeDitherIndices(&reader_, PlainShape(length), deltas_, delta_class_, deltas)) {
        return BadPayload("a tile ends too early");
      }
      int32_t id = previous_;  // in a register, whatever `classes` may point to
      for (size_t i = 0; i < length; ++i) {
        id += deltas[i];
        if (id < 0 || id >= kDitherClasses) return BadPayload("a class is unknown");
        classes[b + i] = static_cast<uint8_t>(id);
      }
      previous_ = id;
    }
    return Status::Ok();
  }

  Status DecodeGroup(const uint8_t* classes, size_t count, size_t begin, size_t size,
                     size_t* dithered) {
    DitherOrder order;
    SortDitherBlocks(classes, count, &order);
    for (size_t b = 0; b < count; ++b) {
      if (classes[b] == 0) {
        PutZeros(begin + b * kDitherBlock, DitherBlockLength(size, b));
      }
    }
    const size_t next = begin + kDitherGroup * kDitherBlock;
    const bool is_next = next + kDitherGroup * kDitherBlock <= sink_.size();
    for (int id = 1; id < kDitherClasses; ++id) {
      const std::span<const uint16_t> blocks(order.blocks + order.ends[id - 1],
                                             order.blocks + order.ends[id]);
      const size_t fetch = next + order.ends[id - 1] * kDitherBlock;
      EQ_RETURN_IF_ERROR(
          DecodeBlocks(id, blocks, begin, size, is_next ? sink_.Soon(fetch) : nullptr));
      if (blocks.empty()) continue;
      // Only the last one may be short.
      *dithered += (blocks.size() - 1) * kDitherBlock + DitherBlockLength(size, blocks.back());
    }
    return Status::Ok();
  }

  // Those of one class; the last one may be short.
  Status DecodeBlocks(int id, std::span<const uint16_t> blocks, size_t begin, size_t size,
                      const float* soon) {
    size_t count = blocks.size();
    float* const out = sink_.Room(begin, most_);
    if (out == nullptr) {
      count = 0;  // each block says how large its values are
    } else if (count > 0 && DitherBlockLength(size, blocks[count - 1]) < kDitherBlock) {
      --count;
    }
    const DitherRun run{blocks.data(), count, static_cast<uint32_t>(begin), soon};
    if (!DecodeDitherRun(&reader_, run, keys_, format_.step, to_, model_, id, out)) {
      return Exhausted();
    }
    for (size_t b : blocks.subspan(count)) {
      EQ_RETURN_IF_ERROR(DecodeBlock(id, begin + b * kDitherBlock, DitherBlockLength(size, b)));
    }
    return Status::Ok();
  }

  static Status Exhausted() {
    return BadPayload("a tile ends too early, or an index is too large");
  }

  Status DecodeBlock(int id, size_t begin, size_t length) {
    const auto first = static_cast<uint32_t>(begin);
    alignas(64) int32_t indices[kDitherBlock];
    if (!DecodeDitherIndices(&reader_, ShapeOfBlock(keys_, first, length), model_, id,
                             indices)) {
      return Exhausted();
    }
    float largest = most_;
    if (!std::isfinite(largest)) {
      float values[kDitherBlock];
      DitherDequantize(indices, length, keys_, first, format_.step, {false, 1}, values);
      largest = std::bit_cast<float>(AbsMaxBits(values, length));
    }
    float* const out = sink_.Room(begin, largest);
    if (out == nullptr) return BadPayload("a value is infinite");
    DitherDequantize(indices, length, keys_, first, format_.step, to_, out);
    return Status::Ok();
  }

  void PutZeros(size_t begin, size_t length) const {
    float* const out = sink_.Room(begin, 0);
    if (!to_.add) std::fill_n(out, length, 0.0f);
    for (size_t i = 0; to_.add && i < length; ++i) out[i] += to_.weight * 0.0f;
  }

  const DitherFormat& format_;
  const DitherModel& model_;
  const DitherModel& deltas_;
  const LaneKeys keys_;
  const DecodeSink& sink_;
  const DitherSink to_;
  const float most_;  // magnitude of any value; infinite if the step alone does not tell
  DitherReader reader_;
  int delta_class_ = 0;
  int32_t previous_ = 0;
};

}  // namespace

Status DecodeDither(const FrameView& frame, const DecodeSink& sink, Workspace& work) {
  EQ_ASSIGN_OR_RETURN(const DitherFormat format, ReadDitherParameters(frame));
  const DitherLayout layout{frame.elements};
  const TilePlaces places = layout.places();
  TileReader tiles(places, frame.payload);
  EQ_RETURN_IF_ERROR(tiles.Check(work));
  std::atomic<size_t> dithered{0};
  const auto decode = [&](size_t tile, int) -> Status {
    EQ_ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, tiles.Tile(tile));
    size_t count = 0;
    TileDecoder decoder(format, MakeLaneKeys(frame.key), sink);
    EQ_RETURN_IF_ERROR(decoder.Run(bytes, tile * kDitherTile, layout.tile_size(tile), &count));
    dithered += count;
    return Status::Ok();
  };
  EQ_RETURN_IF_ERROR(TryParallelFor(work, layout.tiles(), decode));
  if (dithered != format.dithered) {
    return BadPayload("the number of dithered coordinates is wrong");
  }
  return Status::Ok();
}

}  // namespace elastiquant
