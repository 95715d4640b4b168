#include "elastiquant/codec/tiled_payload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace elastiquant {
namespace {

constexpr TileTable kTables[] = {TileTable::kNone, TileTable::kEnds, TileTable::kSizes};
constexpr size_t kTableAt = 4, kBetween = 12, kFullBytes = 40, kLastBytes = 9;

TilePlaces Places(TileTable table, size_t tiles) {
  return {table, kTableAt,   kTableAt + TilePlaces::TableBytes(table, tiles) + kBetween,
          tiles, kFullBytes, kLastBytes};
}

// Some tiles are empty, and some have the most bytes they can have.
std::vector<uint8_t> TileOf(const TilePlaces& places, size_t tile) {
  const size_t most = places.MaxBytes(tile);
  const size_t size = places.table() == TileTable::kNone ? most : tile * 17 % (most + 1);
  return std::vector<uint8_t>(size, static_cast<uint8_t>(tile + 1));
}

std::vector<uint8_t> Written(const TilePlaces& places, bool in_order) {
  std::vector<uint8_t> payload(places.MaxPayloadBytes(), 0xEE);
  TileWriter writer(places, payload, in_order);
  std::vector<size_t> order(places.tiles());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!in_order) std::ranges::reverse(order);
  for (const size_t tile : order) {
    const std::vector<uint8_t> bytes = TileOf(places, tile);
    const std::span<uint8_t> room = writer.Room(tile);
    EXPECT_EQ(room.size(), places.MaxBytes(tile));
    std::ranges::copy(bytes, room.begin());
    if (places.table() != TileTable::kNone) writer.Wrote(tile, bytes.size());
  }
  payload.resize(writer.Finish());
  return payload;
}

TEST(TiledPayload, ComesBackHoweverItWasWritten) {
  Workspace work;
  for (const TileTable table : kTables) {
    for (const size_t tiles : {0, 1, 2, 3, 50}) {
      const TilePlaces places = Places(table, tiles);
      const std::vector<uint8_t> payload = Written(places, /*in_order=*/true);
      EXPECT_EQ(Written(places, /*in_order=*/false), payload);
      TileReader reader(places, payload);
      ASSERT_TRUE(reader.Check(work).ok()) << reader.Check(work).ToString();
      for (size_t tile = 0; tile < tiles; ++tile) {
        const auto bytes = reader.Tile(tile);
        ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
        EXPECT_TRUE(std::ranges::equal(*bytes, TileOf(places, tile))) << tile;
      }
    }
  }
}

TEST(TiledPayload, TablesAreThoseOfTheFrameFormat) {
  const TilePlaces ends = Places(TileTable::kEnds, 3), sizes = Places(TileTable::kSizes, 3);
  uint64_t of_ends[3];
  uint32_t of_sizes[2];
  std::memcpy(of_ends, Written(ends, true).data() + kTableAt, sizeof(of_ends));
  std::memcpy(of_sizes, Written(sizes, true).data() + kTableAt, sizeof(of_sizes));
  EXPECT_EQ(of_ends[0], 0u);
  EXPECT_EQ(of_ends[1], 17u);
  EXPECT_EQ(of_ends[2], 17u + 34 % (kLastBytes + 1));
  EXPECT_EQ(of_sizes[0], 0u);
  EXPECT_EQ(of_sizes[1], 17u);
  EXPECT_EQ(TilePlaces::TableBytes(TileTable::kNone, 3), 0u);
  EXPECT_EQ(TilePlaces::TableBytes(TileTable::kSizes, 0), 0u);
}

TEST(TiledPayload, OfTheWrongSizeIsRefused) {
  Workspace work;
  for (const TileTable table : kTables) {
    const TilePlaces places = Places(table, 5);
    std::vector<uint8_t> payload = Written(places, true);
    payload.resize(places.tiles_at() - 1);
    EXPECT_FALSE(TileReader(places, payload).Check(work).ok());
    // The last tile of a table of sizes has what is left.
    if (table == TileTable::kSizes) continue;
    payload = Written(places, true);
    payload.push_back(0);
    EXPECT_EQ(TileReader(places, payload).Check(work).code(), StatusCode::kCorruptData);
    payload.resize(payload.size() - 2);
    EXPECT_EQ(TileReader(places, payload).Check(work).code(), StatusCode::kCorruptData);
  }
}

// Neither sums that pass 2^64 nor ends in the wrong order lead to bytes of another place.
TEST(TiledPayload, TilesOutsideOfItAreRefused) {
  Workspace work;
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const TilePlaces places = Places(TileTable::kEnds, 5);
  for (const uint64_t end : {kMost, kMost - 1, kMost - places.tiles_at() + 1, uint64_t{1000}}) {
    std::vector<uint8_t> payload = Written(places, true);
    std::memcpy(payload.data() + kTableAt + 2 * sizeof(end), &end, sizeof(end));
    TileReader reader(places, payload);
    ASSERT_TRUE(reader.Check(work).ok());
    EXPECT_TRUE(reader.Tile(1).ok());
    EXPECT_EQ(reader.Tile(2).status().code(), StatusCode::kCorruptData);
    EXPECT_NE(reader.Tile(2).status().message().find("tile 2 "), std::string::npos);
    EXPECT_EQ(reader.Tile(3).status().code(), StatusCode::kCorruptData);
  }
  const TilePlaces sized = Places(TileTable::kSizes, 5);
  std::vector<uint8_t> payload = Written(sized, true);
  const uint32_t size = std::numeric_limits<uint32_t>::max();
  std::memcpy(payload.data() + kTableAt + sizeof(size), &size, sizeof(size));
  TileReader reader(sized, payload);
  ASSERT_TRUE(reader.Check(work).ok());
  EXPECT_TRUE(reader.Tile(0).ok());
  for (size_t tile = 1; tile < 5; ++tile) EXPECT_FALSE(reader.Tile(tile).ok()) << tile;
}

}  // namespace
}  // namespace elastiquant
