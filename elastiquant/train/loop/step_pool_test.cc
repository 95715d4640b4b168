#include "elastiquant/train/loop/step_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

TEST(StepPool, OneWorkerMakesThemInTurn) {
  const auto comm = Communicator::Connect({}).value();
  StepPool pool(comm.get(), 5);
  for (int64_t step = 5; step < 9; ++step) {
    EXPECT_EQ(pool.Next().value(), step);
    EXPECT_EQ(pool.Next().value(), step) << "until it is taken";
    pool.Take();
    EXPECT_EQ(pool.taken_since(), 1u);
  }
}

// Two workers, of which one is slow: together they make each step of the run twice.
TEST(StepPool, ASlowWorkerMakesFewer) {
  constexpr int64_t kFirst = 3, kEnd = 23;
  std::mutex mutex;
  std::vector<int> made(kEnd);
  std::vector<int> by_worker(2);
  uint64_t counted = 0;
  RunWorld(WorldOptions(2), [&](Communicator& comm) {
    StepPool pool(&comm, kFirst);
    for (int64_t last = 0; true;) {
      const auto step = pool.Next();
      ASSERT_TRUE(step.ok()) << step.status().ToString();
      if (*step >= kEnd) break;
      EXPECT_GE(*step, last) << "of one worker they never fall";
      last = *step;
      pool.Take();
      {
        const std::lock_guard lock(mutex);
        ++made[static_cast<size_t>(*step)];
        ++by_worker[static_cast<size_t>(comm.rank())];
        if (comm.rank() == 0) counted += pool.taken_since();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(comm.rank() == 1 ? 100 : 10));
    }
    EXPECT_TRUE(comm.Barrier().ok());
  });
  for (int64_t step = 0; step < kEnd; ++step) {
    EXPECT_EQ(made[static_cast<size_t>(step)], step < kFirst ? 0 : 2) << step;
  }
  EXPECT_EQ(by_worker[0] + by_worker[1], 2 * (kEnd - kFirst));
  EXPECT_GT(by_worker[0], 2 * by_worker[1]);
  EXPECT_GT(by_worker[1], 0);
  EXPECT_LE(counted, static_cast<uint64_t>(2 * (kEnd - kFirst)));
  EXPECT_GE(counted, static_cast<uint64_t>(2 * (kEnd - kFirst)) - 4);
}

}  // namespace
}  // namespace elastiquant
