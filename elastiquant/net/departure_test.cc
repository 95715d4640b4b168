// Workers that leave before the others are done with them, or get on with nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/net/testing.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

// A heart beats each 200 ms.
CommunicatorOptions QuickWorld(int world_size) {
  CommunicatorOptions options = WorldOptions(world_size);
  options.timeout = std::chrono::seconds(2);
  return options;
}

void ExpectWords(const Status& status, const std::string& words) {
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(words), std::string::npos) << status.ToString();
}

class EarlyDeparture : public testing::TestWithParam<int> {};

TEST_P(EarlyDeparture, IsToldToWhoeverStillWaits) {
  const int early = GetParam();
  RunWorld(QuickWorld(3), [=](Communicator& comm) {
    ASSERT_TRUE(comm.Barrier().ok());
    comm.SetFarewell("its script ended");
    if (comm.rank() == early) return;
    const Status status = comm.Barrier();
    ExpectWords(status, "worker " + std::to_string(early) + " has left (its script ended)");
    ExpectWords(status, "still waits for it");
  });
}

TEST_P(EarlyDeparture, IsRememberedByWhoeverWasBusyElsewhere) {
  const int early = GetParam();
  CommunicatorOptions options = QuickWorld(3);
  const std::shared_ptr<StoreHost> store =
      TestNetwork()->HostStore(0, Reach::kThisMachine).value();
  options.store_port = store->port();
  options.store_is_external = false;
  options.store = store;  // worker 0's, in effect: the others do not use it when it has left
  RunWorld(options, [=](Communicator& comm) {
    ASSERT_TRUE(comm.Barrier().ok());
    comm.SetFarewell("its script ended");
    if (comm.rank() == early) return;
    std::this_thread::sleep_for(milliseconds(1500));
    ExpectWords(comm.Receive(early, 0, 8)->Wait().status(),
                "worker " + std::to_string(early) + " has left (its script ended)");
  });
}

INSTANTIATE_TEST_SUITE_P(Begun, EarlyDeparture, testing::Values(0, 2));

TEST(DepartureTest, LosesNothingThatWasSent) {
  RunWorld(QuickWorld(2), [](Communicator& comm) {
    const std::vector<uint8_t> bytes(3000000, 7);
    if (comm.rank() == 0) {
      ASSERT_TRUE(comm.Send(1, 0, bytes)->Wait().ok());
      return;  // and leaves
    }
    auto receive = comm.Receive(0, 0, bytes.size());
    std::this_thread::sleep_for(milliseconds(800));
    const auto size = receive->Wait();
    ASSERT_TRUE(size.ok()) << size.status().ToString();
    EXPECT_TRUE(std::ranges::equal(receive->bytes(), bytes));
  });
}

TEST(DepartureTest, TakesNobodyAlongWhoNeedsNothing) {
  RunWorld(QuickWorld(3), [](Communicator& comm) {
    ASSERT_TRUE(comm.Barrier().ok());
    // Each leaves at another time, the last one when it had long been silent.
    std::this_thread::sleep_for(milliseconds(1200) * comm.rank());
  });
}

TEST(Stall, IsBlamedOnTheWorkerThatWaitsForNobody) {
  CommunicatorOptions options = QuickWorld(3);
  options.stall_timeout = std::chrono::seconds(1);
  RunWorld(options, [](Communicator& comm) {
    ASSERT_TRUE(comm.Barrier().ok());
    comm.SetActivity("asleep");
    if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(2500));
    const Status status = comm.Barrier();
    ExpectWords(status, "worker 1 made no progress while it was asleep");
    ExpectWords(status, "has waited for it for 1 s (stall_timeout)");
    if (comm.rank() == 1) ExpectWords(status, "the other workers gave this one up");
  });
}

TEST(Stall, IsNotALongPause) {
  CommunicatorOptions options = QuickWorld(3);
  options.stall_timeout = std::chrono::seconds(60);
  RunWorld(options, [](Communicator& comm) {
    ASSERT_TRUE(comm.Barrier().ok());
    if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(2500));
    EXPECT_TRUE(comm.Barrier().ok());
  });
}

}  // namespace
}  // namespace elastiquant
