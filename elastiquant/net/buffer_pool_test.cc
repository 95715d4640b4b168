#include "elastiquant/net/buffer_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace elastiquant {
namespace {

TEST(BufferPool, GivesBackWhatWasReturned) {
  BufferPool pool;
  BufferPool::Buffer buffer = pool.Take(1000);
  const uint8_t* const data = buffer.span().data();
  EXPECT_EQ(buffer.span().size(), 1000u);
  buffer = {};
  const BufferPool::Buffer again = pool.Take(900);
  EXPECT_EQ(again.span().data(), data);
  EXPECT_EQ(again.span().size(), 900u);
  EXPECT_EQ(pool.peak_bytes(), 1000u);
}

TEST(BufferPool, DoesNotSpendALargeBufferOnASmallMessage) {
  BufferPool pool;
  const uint8_t* const data = pool.Take(100000).span().data();  // returned at once
  EXPECT_NE(pool.Take(100).span().data(), data);
  EXPECT_EQ(pool.Take(60000).span().data(), data);
}

TEST(BufferPool, CountsTheMostThatWasInUseAtOnce) {
  BufferPool pool;
  std::vector<BufferPool::Buffer> buffers;
  for (int i = 0; i < 10; ++i) buffers.push_back(pool.Take(100));
  buffers.clear();
  buffers.push_back(pool.Take(150));
  EXPECT_EQ(pool.peak_bytes(), 1000u);
}

TEST(BufferPool, MovesBuffers) {
  BufferPool pool;
  BufferPool::Buffer a = pool.Take(10);
  a.span()[9] = 7;
  BufferPool::Buffer b = std::move(a);
  EXPECT_EQ(b.span()[9], 7);
  EXPECT_TRUE(a.span().empty());  // NOLINT(bugprone-use-after-move): as documented
  a = std::move(b);
  EXPECT_EQ(a.span().size(), 10u);
}

}  // namespace
}  // namespace elastiquant
