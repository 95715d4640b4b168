#include "elastiquant/codec/sparse/chunk_decode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "elastiquant/codec/first_error.h"
#include "elastiquant/codec/sparse/chunk_format.h"
#include "elastiquant/codec/sparse/chunk_quantize.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/sparse/largest.h"

namespace elastiquant {
namespace {

// The levels of a message, and behind them their negatives.
struct SignedLevels {
  std::array<float, size_t{1} << kMostChunkBits> of{};
  float largest = 0;
};

Status ReadLevels(const uint8_t* in, size_t count, SignedLevels* levels) {
  for (size_t i = 0; i < count; ++i) {
    float level = 0;
    std::memcpy(&level, in + i * sizeof(level), sizeof(level));
    if (!std::isfinite(level) || std::signbit(level)) {
      return BadPayload("a level is negative or not finite");
    }
    levels->of[i] = level;
    levels->of[count + i] = -level;
    levels->largest = std::max(levels->largest, level);
  }
  return Status::Ok();
}

void ClearChunk(const Chunk& chunk, float* message) {
  for (size_t row = 0; row < chunk.rows; ++row) {
    std::fill_n(message + chunk.begin + row * chunk.stride, chunk.width, 0.0f);
  }
}

class ChunkDecoder {
 public:
  ChunkDecoder(const ChunkFormat& format, const ChunkGeometry& geometry,
               std::span<const uint8_t> payload, const DecodeSink& sink, Workspace& work)
      : format_(format), geometry_(geometry), payload_(payload), sink_(sink), work_(work) {}

  Status Run() {
    EQ_RETURN_IF_ERROR(
        ReadLevels(payload_.data() + format_.levels_at(), format_.levels(), &levels_));
    const TilePlaces places = ChunkPlaces(format_, geometry_);
    TileReader reader(places, payload_);
    EQ_RETURN_IF_ERROR(reader.Check(work_));
    return TryParallelFor(work_, geometry_.tiles(), [&](size_t t, int thread) {
      EQ_ASSIGN_OR_RETURN(const auto bytes, reader.Tile(t));
      return Tile(t, thread, bytes);
    });
  }

 private:
  Status Tile(size_t t, int thread, std::span<const uint8_t> bytes) const {
    ChunkBuffers buffers(format_, geometry_, thread, work_);
    ChunkTile& tile = buffers.tile;
    tile.values = buffers.values;
    tile.counts = tile.counts.first(geometry_.ChunksOf(t));
    tile.scales = tile.scales.first(geometry_.ChunksOf(t));
    size_t number = 0;
    geometry_.VisitTile(t, [&](const Chunk& chunk) {
      tile.counts[number++] = static_cast<uint16_t>(chunk.kept);
    });
    EQ_RETURN_IF_ERROR(ReadChunkTile(bytes, format_.bits, buffers.scratch, &tile));
    float* const message = sink_.Room(0, Largest(tile));
    if (message == nullptr) return BadPayload("a level of a scale is not finite");
    return Put(t, tile, message);
  }

  // The largest magnitude of a tile's values, or a bound of it.
  float Largest(const ChunkTile& tile) const {
    if (format_.bits == kExactChunkBits) {
      return std::bit_cast<float>(AbsMaxBits(tile.values.data(), tile.values.size()));
    }
    return levels_.largest * FromChunkScale(*std::ranges::max_element(tile.scales));
  }

  Status Put(size_t t, const ChunkTile& tile, float* message) const {
    size_t begin = 0, number = 0;
    bool inside = true;
    geometry_.VisitTile(t, [&](const Chunk& chunk) {
      const size_t count = tile.counts[number], first = begin;
      begin += count;
      const size_t c = number++;
      if (!sink_.how().add) ClearChunk(chunk, message);
      if (count == 0) return;
      const uint16_t* const positions = tile.positions.data() + first;
      inside &= positions[count - 1] < chunk.size();
      if (!inside) return;
      if (format_.bits == kExactChunkBits) {
        const float* const values = tile.values.data() + first;
        PutChunk(chunk, {positions, count}, message, [&](size_t i) { return values[i]; });
      } else {
        const uint8_t* const codes = tile.codes.data() + first;
        const float scale = FromChunkScale(tile.scales[c]);
        PutChunk(chunk, {positions, count}, message,
                 [&](size_t i) { return levels_.of[codes[i]] * scale; });
      }
    });
    return inside ? Status::Ok() : BadPayload("a position is beyond the end of its chunk");
  }

  template <typename ValueAt>
  void PutChunk(const Chunk& chunk, std::span<const uint16_t> positions, float* message,
                const ValueAt& value_at) const {
    const auto put = [&](const auto& place) {
      if (!sink_.how().add) {
        for (size_t i = 0; i < positions.size(); ++i) place(positions[i]) = value_at(i);
        return;
      }
      for (size_t i = 0; i < positions.size(); ++i) {
        const float product = sink_.how().weight * value_at(i);
        place(positions[i]) += product;
      }
    };
    float* const out = message + chunk.begin;
    if (chunk.rows == 1) {
      put([&](size_t i) -> float& { return out[i]; });
    } else {
      const size_t width = chunk.width, stride = chunk.stride;
      put([&](size_t i) -> float& { return out[PlaceInRows(i, width, stride)]; });
    }
  }

  const ChunkFormat& format_;
  const ChunkGeometry& geometry_;
  const std::span<const uint8_t> payload_;
  const DecodeSink& sink_;
  Workspace& work_;
  SignedLevels levels_;
};

// Without a list the message is one run.
Result<std::span<const PlacedRun>> ReadRuns(const ChunkFormat& format, const FrameView& frame,
                                            Workspace& work, PlacedRun* single) {
  if (format.runs == 0) {
    *single = WholeRun(frame.elements);
    return std::span<const PlacedRun>(single, 1);
  }
  const size_t runs = format.runs;
  uint8_t* const bytes =
      work.SharedScratch(Workspace::kCodecSlot, runs * (sizeof(PlacedRun) + sizeof(ChunkRun)))
          .data();
  const std::span<PlacedRun> placed(reinterpret_cast<PlacedRun*>(bytes), runs);
  const std::span<ChunkRun> listed(
      reinterpret_cast<ChunkRun*>(bytes + runs * sizeof(PlacedRun)), runs);
  static_assert(sizeof(ChunkRun) == kChunkRunBytes);
  std::memcpy(listed.data(), frame.payload.data(), runs * kChunkRunBytes);
  EQ_RETURN_IF_ERROR(PlaceRuns(listed, format.rule, frame.elements, placed));
  return std::span<const PlacedRun>(placed);
}

}  // namespace

Status DecodeChunks(const FrameView& frame, const DecodeSink& sink, Workspace& work) {
  EQ_ASSIGN_OR_RETURN(const ChunkFormat format, ReadChunkParameters(frame));
  if (frame.elements == 0) {
    const bool nothing = frame.payload.empty() && format.runs == 0;
    return nothing ? Status::Ok() : BadPayload("bytes without values");
  }
  // Memory is allocated for the list of runs before it is read.
  if (format.runs > frame.elements) return BadPayload("there are more runs than values");
  if (frame.payload.size() < format.table_at()) return BadPayload("it ends before its tiles");
  PlacedRun single;
  EQ_ASSIGN_OR_RETURN(const auto runs, ReadRuns(format, frame, work, &single));
  const ChunkGeometry geometry(format.rule, runs);
  return ChunkDecoder(format, geometry, frame.payload, sink, work).Run();
}

}  // namespace elastiquant
