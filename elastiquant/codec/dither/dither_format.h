// What a frame of the dither codec says of itself, and where everything stands in its payload
// (docs/frame-format.md, "dither").
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/tiled_payload.h"
#include "elastiquant/coding/dither_model.h"

namespace elastiquant {

inline constexpr size_t kDitherParameterBytes = 12;
inline constexpr size_t kDitherTile = size_t{1} << 19;  // coordinates
inline constexpr size_t kDitherGroup = 512;             // blocks whose classes stand together
inline constexpr size_t kDitherTileHeader = 3;  // lanes, class of differences, first class
inline constexpr uint8_t kDitherRawTile = 255;  // instead of all that: plain floats follow
inline constexpr size_t kDitherRawTileHeader = 1;

struct DitherFormat {
  DitherDensity density = DitherDensity::kLaplace;
  int phase = kNeutralPhase;
  float step = 0;  // 0 only if nothing is dithered
  uint32_t dithered =
      0;  // coordinates in blocks that are coded and not zero: each has variance step^2/12
};
std::array<uint8_t, kDitherParameterBytes> WriteDitherParameters(const DitherFormat& format);
Result<DitherFormat> ReadDitherParameters(const FrameView& frame);

struct DitherLayout {
  size_t n;
  size_t tiles() const { return (n + kDitherTile - 1) / kDitherTile; }
  size_t tile_size(size_t tile) const { return std::min(kDitherTile, n - tile * kDitherTile); }
  // A tile that would be larger holds its values as they are.
  static size_t MaxTileBytes(size_t size) {
    return kDitherRawTileHeader + sizeof(float) * size;
  }
  // The sizes of all tiles but the last stand before them.
  TilePlaces places() const {
    return {TileTable::kSizes,
            0,
            TilePlaces::TableBytes(TileTable::kSizes, tiles()),
            tiles(),
            MaxTileBytes(kDitherTile),
            tiles() == 0 ? 0 : MaxTileBytes(tile_size(tiles() - 1))};
  }
};
constexpr size_t DitherBlocks(size_t size) { return (size + kDitherBlock - 1) / kDitherBlock; }
inline size_t DitherBlockLength(size_t size, size_t block) {
  return std::min(kDitherBlock, size - block * kDitherBlock);
}

// The blocks of a group that are not zero, by class, then by place.
struct DitherOrder {
  uint16_t blocks[kDitherGroup];
  uint16_t ends[kDitherClasses];  // those of class c stand at [ends[c - 1], ends[c])
};
void SortDitherBlocks(const uint8_t* classes, size_t count, DitherOrder* order);

}  // namespace elastiquant
