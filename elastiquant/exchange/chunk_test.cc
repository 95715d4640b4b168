#include "elastiquant/exchange/chunk.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace elastiquant {
namespace {

TEST(Chunk, ChunksCoverTheVectorInOrder) {
  for (const int chunks : {1, 2, 3, 4, 7, 16}) {
    for (const size_t n : {0, 1, 2, 15, 16, 17, 511, 512, 513, 8191, 8192, 131072, 1000003}) {
      size_t next = 0;
      for (int j = 0; j < chunks; ++j) {
        const Chunk chunk = ChunkOf(n, chunks, j);
        EXPECT_EQ(chunk.begin, next) << n << " in " << chunks;
        next = chunk.begin + chunk.size;
      }
      EXPECT_EQ(next, n) << n << " in " << chunks;
    }
  }
}

TEST(Chunk, SizesAreBalancedAndLongVectorsAligned) {
  for (const size_t n : {100000, 272474, 1000003}) {
    for (int j = 0; j < 4; ++j) {
      const Chunk chunk = ChunkOf(n, 4, j);
      EXPECT_EQ(chunk.begin % kChunkAlignment, 0u);
      EXPECT_NEAR(static_cast<double>(chunk.size), static_cast<double>(n) / 4, kChunkAlignment);
    }
  }
}

TEST(Chunk, AVectorShorterThanTheWorldLeavesSomeEmpty) {
  size_t empty = 0;
  for (int j = 0; j < 8; ++j) empty += ChunkOf(3, 8, j).size == 0;
  EXPECT_EQ(empty, 5u);
}

}  // namespace
}  // namespace elastiquant
