#include "elastiquant/coding/chunk_positions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "elastiquant/base/random.h"

namespace elastiquant {
namespace {

struct Chunks {
  std::vector<uint16_t> counts, positions;

  void Add(std::vector<uint16_t> chunk) {
    counts.push_back(static_cast<uint16_t>(chunk.size()));
    positions.insert(positions.end(), chunk.begin(), chunk.end());
  }
};

// `kept` of each of so many chunks, all choices equally likely.
Chunks RandomChunks(size_t chunks, size_t chunk, size_t kept, uint32_t seed = 1) {
  Chunks made;
  std::vector<uint16_t> all(chunk);
  for (size_t c = 0; c < chunks; ++c) {
    std::iota(all.begin(), all.end(), uint16_t{0});
    const LaneKeys keys = MakeLaneKeys(DeriveKey(seed, c, chunk, kept));
    for (uint32_t i = 0; i < kept; ++i) {
      const uint64_t left = chunk - i;
      std::swap(all[i], all[i + (RandomBits(keys, i) * left >> 32)]);
    }
    std::vector<uint16_t> chosen(all.begin(), all.begin() + static_cast<long>(kept));
    std::ranges::sort(chosen);
    made.Add(chosen);
  }
  return made;
}

std::vector<uint8_t> Encode(const Chunks& chunks) {
  const size_t n = chunks.positions.size();
  std::vector<uint8_t> out(MaxChunkPositionBytes(n)), scratch(ChunkPositionScratch(n));
  const auto size = EncodeChunkPositions(chunks.counts, chunks.positions, scratch, out);
  EXPECT_TRUE(size.ok()) << size.status().ToString();
  out.resize(size.ok() ? *size : 0);
  return out;
}

Result<size_t> Decode(std::span<const uint8_t> in, std::span<const uint16_t> counts,
                      std::vector<uint16_t>* positions) {
  positions->resize(std::accumulate(counts.begin(), counts.end(), size_t{0}));
  std::vector<uint8_t> scratch(ChunkPositionScratch(positions->size()));
  return DecodeChunkPositions(in, counts, scratch, *positions);
}

void ExpectRoundTrip(const Chunks& chunks) {
  std::vector<uint8_t> bytes = Encode(chunks);
  const size_t size = bytes.size();
  bytes.resize(size + 3, 0xAB);  // what stands behind is another's
  std::vector<uint16_t> positions;
  const auto used = Decode(bytes, chunks.counts, &positions);
  ASSERT_TRUE(used.ok()) << used.status().ToString();
  EXPECT_EQ(*used, size);
  EXPECT_EQ(positions, chunks.positions);
}

double BitsAPosition(const Chunks& chunks) {
  return 8.0 * static_cast<double>(Encode(chunks).size()) /
         static_cast<double>(chunks.positions.size());
}

// log2 of the number of choices, for each position.
double Bound(double chunk, double kept) {
  const double nats =
      std::lgamma(chunk + 1) - std::lgamma(kept + 1) - std::lgamma(chunk - kept + 1);
  return nats / std::log(2.0) / kept;
}

TEST(ChunkPositions, ComeBack) {
  ExpectRoundTrip({});
  Chunks odd;
  odd.Add({});
  ExpectRoundTrip(odd);
  odd.Add({0});
  ExpectRoundTrip(odd);
  odd.Add({kMaxChunk - 1});
  odd.Add({});
  odd.Add({0, 1, 2, kMaxChunk - 2, kMaxChunk - 1});
  ExpectRoundTrip(odd);
  std::vector<uint16_t> all(kMaxChunk);
  std::iota(all.begin(), all.end(), uint16_t{0});
  odd.Add(all);
  ExpectRoundTrip(odd);
}

TEST(ChunkPositions, ComeBackForAnyNumberOfAnyChunk) {
  for (size_t chunk : {1u, 2u, 63u, 64u, 65u, 255u, 256u, 257u, 4096u, 32768u}) {
    for (size_t kept : {size_t{1}, chunk / 64, chunk / 3, chunk - 1, chunk}) {
      for (size_t chunks : {1u, 7u, 300u}) {
        if (kept * chunks > 100000) continue;
        SCOPED_TRACE(std::to_string(kept) + " of " + std::to_string(chunk));
        ExpectRoundTrip(RandomChunks(chunks, chunk, kept));
      }
    }
  }
}

// Almost all gaps are short, and a few are as long as they can be: these are listed.
TEST(ChunkPositions, LongGapsAmongShortOnesComeBack) {
  Chunks chunks;
  for (uint16_t c = 0; c < 200; ++c) {
    std::vector<uint16_t> chunk(100);
    std::iota(chunk.begin(), chunk.end(), static_cast<uint16_t>(c % 3));
    if (c % 50 == 0) chunk.push_back(static_cast<uint16_t>(kMaxChunk - 1 - c));
    chunks.Add(chunk);
  }
  ExpectRoundTrip(chunks);
  EXPECT_LT(BitsAPosition(chunks), 0.5);
}

TEST(ChunkPositions, CostAboutTheirEntropy) {
  EXPECT_LT(BitsAPosition(RandomChunks(256, 4096, 64)), Bound(4096, 64) + 0.15);
  EXPECT_LT(BitsAPosition(RandomChunks(256, 4096, 32)), Bound(4096, 32) + 0.2);
  EXPECT_LT(BitsAPosition(RandomChunks(256, 4096, 16)), Bound(4096, 16) + 0.3);
  EXPECT_LT(BitsAPosition(RandomChunks(32, 4096, 1000)), Bound(4096, 1000) + 0.1);
  EXPECT_LT(BitsAPosition(RandomChunks(1, 4096, 64)), Bound(4096, 64) + 3);
  EXPECT_NEAR(Bound(4096, 64), 7.36, 0.01);
}

TEST(ChunkPositions, WhatIsCutShortIsRefused) {
  const Chunks chunks = RandomChunks(20, 4096, 64);
  const std::vector<uint8_t> bytes = Encode(chunks);
  std::vector<uint16_t> positions;
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Decode(std::span(bytes).first(size), chunks.counts, &positions).status().code(),
              StatusCode::kCorruptData)
        << size;
  }
}

TEST(ChunkPositions, HostileBytesGiveAscendingPositionsOrAnError) {
  const Chunks chunks = RandomChunks(30, 4096, 20);
  const std::vector<uint8_t> good = Encode(chunks);
  size_t refused = 0;
  for (uint32_t draw = 0; draw < 3000; ++draw) {
    std::vector<uint8_t> bad = good;
    for (uint32_t change = 0; change <= draw % 4; ++change) {
      const uint32_t random = RandomBits({8, 9}, 4 * draw + change);
      const size_t size = draw % 2 == 0 ? 40 : bad.size();
      bad[(random >> 8) % size] = static_cast<uint8_t>(random);
    }
    std::vector<uint16_t> positions;
    if (!Decode(bad, chunks.counts, &positions).ok()) {
      ++refused;
      continue;
    }
    size_t begin = 0;
    for (const uint16_t count : chunks.counts) {
      const std::span<const uint16_t> chunk = std::span(positions).subspan(begin, count);
      EXPECT_TRUE(std::ranges::adjacent_find(chunk, std::greater_equal<>()) == chunk.end());
      EXPECT_LT(chunk.back(), kMaxChunk);
      begin += count;
    }
  }
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace elastiquant
