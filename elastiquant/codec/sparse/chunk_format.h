// What a frame of chunks says of itself, and the bytes of a tile of chunks
// (docs/frame-format.md, "chunks").
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/sparse/chunk_geometry.h"
#include "elastiquant/codec/tiled_payload.h"

namespace elastiquant {

inline constexpr size_t kChunkParameterBytes = 16;
inline constexpr size_t kChunkRunBytes = 8;
// Of values that are floats, kept as they are.
inline constexpr int kExactChunkBits = 0;
inline constexpr int kMostChunkBits = 8;

struct ChunkFormat {
  int bits = 2;  // of a value, its sign included: 1 to 8; or kExactChunkBits
  ChunkRule rule;
  uint32_t runs = 0;  // in the payload; 0: the message is one run of values as they stand

  // The sizes that a value can have, besides its sign, in units of its chunk's scale.
  size_t levels() const { return bits == kExactChunkBits ? 0 : size_t{1} << (bits - 1); }
  size_t levels_at() const { return runs * kChunkRunBytes; }
  size_t table_at() const { return levels_at() + levels() * sizeof(float); }
};
std::array<uint8_t, kChunkParameterBytes> WriteChunkParameters(const ChunkFormat& format);
Result<ChunkFormat> ReadChunkParameters(const FrameView& frame);

// Where the tiles of a payload are.
TilePlaces ChunkPlaces(const ChunkFormat& format, const ChunkGeometry& geometry);

// What is kept of the chunks of a tile, chunk after chunk.
struct ChunkTile {
  std::span<uint16_t> counts;     // of each chunk
  std::span<uint16_t> positions;  // in their chunk, ascending
  std::span<uint16_t> scales;     // of each chunk: bfloat16. None if values are exact
  std::span<uint8_t> codes;       // of each position: a level, and above it the sign. Likewise
  std::span<float> values;        // of each position. None unless values are exact
};

// What a thread needs for one tile at a time: room for all that it can hold, and scratch. All
// of it lies in the thread's scratch of the workspace, and lives as long as that.
struct ChunkBuffers {
  ChunkBuffers(const ChunkFormat& format, const ChunkGeometry& geometry, int thread,
               Workspace& work);

  ChunkTile tile;
  std::span<uint8_t> scratch;      // for the functions below
  std::span<uint32_t> candidates;  // for SelectLargest
  std::span<float> values;         // of each position, whether they are exact or not
};

// The most bytes that a tile of so many chunks and kept values has.
size_t MaxChunkTileBytes(int bits, size_t chunks, size_t kept);

// Writes a tile, and returns its size. `full`: every chunk keeps as many values as it may, so
// that their counts need not be told.
Result<size_t> WriteChunkTile(const ChunkTile& tile, int bits, bool full,
                              std::span<uint8_t> scratch, std::span<uint8_t> out);

// Reads what WriteChunkTile has written into a tile of the greatest counts, which
// tile->counts has at first, and cuts it down to the true ones. Fails with kCorruptData if it
// cannot be right: if a count is above the greatest, a scale or a value not finite, or if it is
// cut short. Positions are ascending, but those of a chunk of less than kMaxChunk values may be
// beyond its end.
Status ReadChunkTile(std::span<const uint8_t> in, int bits, std::span<uint8_t> scratch,
                     ChunkTile* tile);

}  // namespace elastiquant
