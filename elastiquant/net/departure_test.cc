// Workers that leave before the others are done with them, or get on with nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/net/memory/memory_network.h"
#include "elastiquant/net/memory/testing.h"

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

// A world whose worker 0 hosts the store, and leaves at once. None of the others may be told of
// a loss. Calls gone(rank) when the communicator of a worker is destroyed.
void RunWithoutHost(
    int world_size, MemoryNetwork* network, const std::function<void(Communicator&)>& body,
    const std::function<void(int)>& gone = [](int) {}) {
  CommunicatorOptions options = HostedWorldOptions(world_size, std::chrono::seconds(2));
  options.on_peer_lost = [](const Status& verdict) { ADD_FAILURE() << verdict.ToString(); };
  const auto work = [&](Communicator& comm) {
    ASSERT_TRUE(comm.Barrier().ok());
    comm.SetFarewell("its script ended");
    if (comm.rank() > 0) body(comm);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      StartWorker(options, rank, work, network).join();
      gone(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DepartureOfTheHost, LeavesTimeToThoseThatStillWaitForEachOther) {
  MemoryNetwork network;
  RunWithoutHost(4, &network, [](Communicator& comm) {
    const std::vector<uint8_t> bytes(1000, 7);
    if (comm.rank() == 1) {  // needs nobody, and does not leave
      std::this_thread::sleep_for(milliseconds(4000));
    } else if (comm.rank() == 2) {
      const auto size = comm.Receive(3, 0, bytes.size())->Wait();
      EXPECT_TRUE(size.ok()) << size.status().ToString();
    } else {
      const auto receive = comm.Receive(2, 1, bytes.size());
      std::this_thread::sleep_for(milliseconds(3000));
      const auto size = comm.Send(2, 0, bytes)->Wait();
      EXPECT_TRUE(size.ok()) << size.status().ToString();
    }
  });
}

// A worker's connections last until what it has sent has come.
TEST(DepartureOfTheHost, LosesNothingThatOthersHaveSent) {
  MemoryNetwork network({.least_delay = milliseconds(2000), .most_delay = milliseconds(2000)});
  std::atomic<bool> has_come = false;
  const auto leave_at_once = [&](Communicator& comm) {
    const std::vector<uint8_t> bytes(1000, 7);
    if (comm.rank() == 1) {
      ASSERT_TRUE(comm.Send(2, 0, bytes)->Wait().ok());
      std::this_thread::sleep_for(milliseconds(700));
      return;  // and leaves, with the message still on its way
    }
    const auto size = comm.Receive(1, 0, bytes.size())->Wait();
    has_come = true;
    EXPECT_TRUE(size.ok()) << size.status().ToString();
  };
  RunWithoutHost(3, &network, leave_at_once, [&](int rank) {
    std::this_thread::sleep_for(milliseconds(500));  // the receiver may be about to tell
    EXPECT_TRUE(rank != 1 || has_come);
  });
}

// Nobody watches the others any more when all have what they want.
TEST(DepartureOfTheHost, LeavesAloneThoseThatNeedNobody) {
  MemoryNetwork network;
  RunWithoutHost(3, &network, [&](Communicator& comm) {
    std::this_thread::sleep_for(milliseconds(1000));
    if (comm.rank() == 2) return network.Kill(2);
    std::this_thread::sleep_for(milliseconds(2000));
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
