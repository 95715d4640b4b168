// Payloads of tiles, which threads write and read independently of each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"

namespace elastiquant {

// How a payload tells where its tiles are. The table stands anywhere before the tiles.
enum class TileTable : uint8_t {
  kNone,   // not at all: every tile has the most bytes that one of its length can have
  kEnds,   // by where each ends, u64, counted from where the first one begins
  kSizes,  // by how many bytes each but the last has, u32; the last ends with the payload
};

// Where the tiles of a payload stand. All offsets are in bytes from the payload's beginning.
class TilePlaces {
 public:
  // The tiles begin at `tiles_at`, which is not before the end of the table that stands at
  // `table_at`. Every tile has at most `full_bytes`, and the last one at most `last_bytes`.
  TilePlaces(TileTable table, size_t table_at, size_t tiles_at, size_t tiles, size_t full_bytes,
             size_t last_bytes)
      : table_(table),
        table_at_(table_at),
        tiles_at_(tiles_at),
        tiles_(tiles),
        full_bytes_(full_bytes),
        last_bytes_(last_bytes) {}

  static constexpr size_t TableBytes(TileTable table, size_t tiles) {
    if (table == TileTable::kNone || tiles == 0) return 0;
    return table == TileTable::kEnds ? tiles * sizeof(uint64_t)
                                     : (tiles - 1) * sizeof(uint32_t);
  }

  TileTable table() const { return table_; }
  size_t tiles() const { return tiles_; }
  size_t table_at() const { return table_at_; }
  size_t table_end() const { return table_at_ + TableBytes(table_, tiles_); }
  size_t tiles_at() const { return tiles_at_; }
  // Returns the most bytes that a tile can have.
  size_t MaxBytes(size_t tile) const { return tile + 1 == tiles_ ? last_bytes_ : full_bytes_; }
  // Returns where a tile stands if all before it have the most bytes possible. tile <= tiles().
  size_t MaxAt(size_t tile) const {
    if (tile < tiles_ || tile == 0) return tiles_at_ + tile * full_bytes_;
    return tiles_at_ + (tiles_ - 1) * full_bytes_ + last_bytes_;
  }
  // Returns the most bytes that the payload can have.
  size_t MaxPayloadBytes() const { return MaxAt(tiles_); }

 private:
  TileTable table_;
  size_t table_at_, tiles_at_, tiles_, full_bytes_, last_bytes_;
};

// Writes the tiles of one payload, and the table. Threads that write different tiles do not
// wait for each other: each tile is written where it stands in the worst case, and all are
// moved together in the end. One thread alone writes each where it belongs.
class TileWriter {
 public:
  // `in_order`: whether tiles are written one after the other, from the first to the last. The
  // payload must have places.MaxPayloadBytes(), and both must outlive the writer.
  TileWriter(const TilePlaces& places, std::span<uint8_t> payload, bool in_order)
      : places_(places), payload_(payload), in_order_(in_order), end_(places.tiles_at()) {}

  // Returns the room for a tile, which has places.MaxBytes(tile).
  std::span<uint8_t> Room(size_t tile) const {
    const bool together = in_order_ && places_.table() != TileTable::kNone;
    return payload_.subspan(together ? end_ : places_.MaxAt(tile), places_.MaxBytes(tile));
  }
  // Must be called for each tile that was written into its room, unless the table is kNone. A
  // tile has less than 4 GiB.
  void Wrote(size_t tile, size_t size);
  // Returns the size of the payload, after all tiles have been written.
  size_t Finish();

 private:
  size_t SizeOf(size_t tile) const;
  void WriteEntry(size_t tile, size_t entry);

  const TilePlaces& places_;
  const std::span<uint8_t> payload_;
  const bool in_order_;
  size_t end_;              // of what has been written in order
  uint32_t last_size_ = 0;  // the last tile's, which a table of sizes has no place for
};

// Reads the tiles of one payload, which may have come from anywhere.
class TileReader {
 public:
  // Both must outlive the reader.
  TileReader(const TilePlaces& places, std::span<const uint8_t> payload)
      : places_(places), payload_(payload) {}

  // Fails with kCorruptData unless the payload has its table, and the tiles end where it does.
  // Must be called before Tile. The sizes of a table are added up only once, in the scratch
  // memory kCodecSlot + 1 of `work`, which must be left alone while tiles are read.
  Status Check(Workspace& work);
  // Returns the bytes of a tile. Fails with kCorruptData if they lie outside the payload.
  Result<std::span<const uint8_t>> Tile(size_t tile) const;

 private:
  const uint8_t* Table() const { return payload_.data() + places_.table_at(); }
  // Return where a tile begins and ends as the table says, counted from the first tile. What
  // the table says may be wrong. A tile ends where the next begins; Begin takes tile <=
  // tiles().
  uint64_t Begin(size_t tile) const;
  uint64_t End(size_t tile, uint64_t begin) const;
  void AddUpSizes(Workspace& work);

  const TilePlaces& places_;
  const std::span<const uint8_t> payload_;
  std::span<uint64_t> begins_;  // of the tiles of a table of sizes
};

}  // namespace elastiquant
