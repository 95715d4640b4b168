#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "elastiquant/net/liveness.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

// As one that was stopped for 30 ms. If they were spent on work, they have passed.
TEST(LivedTimeTest, PassesWhileTheProcessWorksAndNotWhileItIsStopped) {
  LivedTime stopped(milliseconds(2)), busy(milliseconds(2));
  std::this_thread::sleep_for(milliseconds(30));
  stopped.Tick();
  EXPECT_EQ(stopped.now(), milliseconds(2));
  busy.Tick(milliseconds(27));
  EXPECT_EQ(busy.now(), milliseconds(29));
  busy.Tick(std::chrono::hours(1));
  EXPECT_GE(busy.now(), milliseconds(29));
  EXPECT_LT(busy.now(), std::chrono::hours(1));
}

}  // namespace
}  // namespace elastiquant
