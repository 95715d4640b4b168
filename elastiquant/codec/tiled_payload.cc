#include "elastiquant/codec/tiled_payload.h"

#include <cstring>
#include <string>

#include "elastiquant/codec/frame.h"

namespace elastiquant {
namespace {

template <typename T>
T ReadEntry(const uint8_t* table, size_t tile) {
  T entry;
  std::memcpy(&entry, table + tile * sizeof(T), sizeof(T));
  return entry;
}

}  // namespace

void TileWriter::WriteEntry(size_t tile, size_t entry) {
  uint8_t* const table = payload_.data() + places_.table_at();
  if (places_.table() == TileTable::kEnds) {
    const uint64_t end = entry;
    std::memcpy(table + tile * sizeof(end), &end, sizeof(end));
    return;
  }
  const auto size = static_cast<uint32_t>(entry);
  if (tile + 1 == places_.tiles()) {
    last_size_ = size;
  } else {
    std::memcpy(table + tile * sizeof(size), &size, sizeof(size));
  }
}

void TileWriter::Wrote(size_t tile, size_t size) {
  if (!in_order_) return WriteEntry(tile, size);
  end_ += size;
  WriteEntry(tile, places_.table() == TileTable::kEnds ? end_ - places_.tiles_at() : size);
}

size_t TileWriter::SizeOf(size_t tile) const {
  const uint8_t* const table = payload_.data() + places_.table_at();
  if (places_.table() == TileTable::kEnds) return ReadEntry<uint64_t>(table, tile);
  return tile + 1 == places_.tiles() ? last_size_ : ReadEntry<uint32_t>(table, tile);
}

size_t TileWriter::Finish() {
  if (places_.table() == TileTable::kNone) return places_.MaxPayloadBytes();
  if (in_order_) return end_;
  size_t end = places_.tiles_at();
  for (size_t tile = 0; tile < places_.tiles(); ++tile) {
    const size_t size = SizeOf(tile);
    std::memmove(payload_.data() + end, payload_.data() + places_.MaxAt(tile), size);
    end += size;
    // Until now a table of ends has held the sizes.
    if (places_.table() == TileTable::kEnds) WriteEntry(tile, end - places_.tiles_at());
  }
  return end;
}

Status TileReader::Check(Workspace& work) {
  if (places_.table() == TileTable::kNone) {
    const size_t size = places_.MaxPayloadBytes();
    if (payload_.size() == size) return Status::Ok();
    return BadPayload("it has " + std::to_string(payload_.size()) + " bytes, not " +
                      std::to_string(size));
  }
  if (payload_.size() < places_.tiles_at()) return BadPayload("it ends before its tiles begin");
  // A table of sizes leaves the last tile what remains.
  if (places_.table() == TileTable::kSizes && places_.tiles() > 0) {
    AddUpSizes(work);
    return Status::Ok();
  }
  const uint64_t end = Begin(places_.tiles());
  if (end == payload_.size() - places_.tiles_at()) return Status::Ok();
  return BadPayload("its tiles do not end where it does");
}

Result<std::span<const uint8_t>> TileReader::Tile(size_t tile) const {
  const std::span<const uint8_t> all = payload_.subspan(places_.tiles_at());
  const uint64_t begin = Begin(tile), end = End(tile, begin);
  if (begin <= end && end <= all.size()) return all.subspan(begin, end - begin);
  return BadPayload("tile " + std::to_string(tile) + " lies outside of it");
}

uint64_t TileReader::Begin(size_t tile) const {
  if (places_.table() == TileTable::kNone) return places_.MaxAt(tile) - places_.tiles_at();
  if (places_.table() == TileTable::kEnds) {
    return tile == 0 ? 0 : ReadEntry<uint64_t>(Table(), tile - 1);
  }
  return begins_.empty() ? 0 : begins_[tile];
}

// No table is so long that its sum could pass 2^64: sizes are below 2^32, and so are tiles.
void TileReader::AddUpSizes(Workspace& work) {
  const size_t bytes = places_.tiles() * sizeof(uint64_t);
  uint8_t* const scratch = work.SharedScratch(Workspace::kCodecSlot + 1, bytes).data();
  begins_ = {reinterpret_cast<uint64_t*>(scratch), places_.tiles()};
  begins_[0] = 0;
  for (size_t tile = 1; tile < begins_.size(); ++tile) {
    begins_[tile] = begins_[tile - 1] + ReadEntry<uint32_t>(Table(), tile - 1);
  }
}

uint64_t TileReader::End(size_t tile, uint64_t begin) const {
  if (places_.table() != TileTable::kSizes) return Begin(tile + 1);
  if (tile + 1 == places_.tiles()) return payload_.size() - places_.tiles_at();
  return begin + ReadEntry<uint32_t>(Table(), tile);
}

}  // namespace elastiquant
