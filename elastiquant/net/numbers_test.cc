#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "elastiquant/net/communicator.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

TEST(Numbers, EachIsTakenOnceWhoeverTakesIt) {
  constexpr size_t kEach = 20;
  std::mutex mutex;
  std::vector<uint64_t> taken;
  RunWorld(WorldOptions(3), [&](Communicator& comm) {
    const auto take = [&] {
      for (size_t i = 0; i < kEach; ++i) {
        const auto number = comm.TakeNumber();
        ASSERT_TRUE(number.ok()) << number.status().ToString();
        const std::lock_guard lock(mutex);
        taken.push_back(*number);
      }
    };
    std::thread another(take);  // of the same worker
    take();
    another.join();
    EXPECT_TRUE(comm.Barrier().ok());
    EXPECT_EQ(comm.traffic().bytes_up, 0u) << "it is not counted";
  });
  std::ranges::sort(taken);
  ASSERT_EQ(taken.size(), 3 * 2 * kEach);
  for (size_t i = 0; i < taken.size(); ++i) EXPECT_EQ(taken[i], i);
}

TEST(Numbers, AWorkerAloneTakesAll) {
  const auto comm = Communicator::Connect({}).value();
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(comm->TakeNumber().value(), i);
}

}  // namespace
}  // namespace elastiquant
