#include "elastiquant/base/workspace.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <vector>

namespace elastiquant {
namespace {

TEST(Workspace, RunsEveryItemOnce) {
  for (int threads : {1, 2, 5}) {
    Workspace work(threads);
    ASSERT_EQ(work.threads(), threads);
    for (size_t items : {0u, 1u, 2u, 7u, 1000u}) {
      std::vector<std::atomic<int>> seen(items);
      work.ParallelFor(items, [&](size_t i, int t) {
        ASSERT_LT(t, threads);
        ++seen[i];
      });
      for (const auto& count : seen) EXPECT_EQ(count, 1);
    }
  }
}

TEST(Workspace, ThrowsAgainWhatAnItemThrows) {
  for (int threads : {1, 3}) {
    Workspace work(threads);
    EXPECT_THROW(work.ParallelFor(100, [](size_t, int) { throw std::bad_alloc(); }),
                 std::bad_alloc);
    std::atomic<int> done{0};
    work.ParallelFor(100, [&](size_t, int) { ++done; });
    EXPECT_EQ(done, 100) << "it can be used again";
  }
}

TEST(Workspace, ScratchIsAlignedAndKept) {
  Workspace work(2);
  const auto big = work.Scratch(1, 1000);
  EXPECT_GE(big.size(), 1000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(big.data()) % 64, 0u);
  EXPECT_EQ(work.Scratch(1, 10).data(), big.data());
}

TEST(Workspace, SharedScratchIsApartFromTheThreads) {
  Workspace work(1);
  const auto own = work.Scratch(0, 100);
  const auto first = work.SharedScratch(Workspace::kCodecSlot, 100);
  const auto second = work.SharedScratch(Workspace::kModifierSlot, 100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data()) % 64, 0u);
  EXPECT_NE(first.data(), own.data());
  EXPECT_NE(first.data(), second.data());
  EXPECT_EQ(work.SharedScratch(Workspace::kCodecSlot, 10).data(), first.data());
}

}  // namespace
}  // namespace elastiquant
