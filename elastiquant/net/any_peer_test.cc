// Messages that may come from any worker, and waits that end at a deadline.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "elastiquant/net/memory/testing.h"
#include "elastiquant/net/transport_contract.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;

CommunicatorOptions World(int world_size) {
  CommunicatorOptions options = WorldOptions(world_size);
  options.timeout = std::chrono::seconds(2);
  return options;
}

// Every worker sends all others three messages, and takes those of others as they come.
TEST(AnyPeer, TakesEachMessageOnceAndTellsWhose) {
  for (const int world : {2, 5}) {
    RunWorld(World(world), [=](Communicator& comm) {
      constexpr int kMessages = 3;
      std::vector<std::unique_ptr<Transfer>> sends;
      for (uint8_t m = 0; m < kMessages; ++m) {
        for (int to = 0; to < world; ++to) {
          if (to == comm.rank()) continue;
          sends.push_back(comm.Send(to, 5, Bytes{static_cast<uint8_t>(comm.rank()), m}));
        }
      }
      std::map<int, Bytes> came;
      for (int m = 0; m < kMessages * (world - 1); ++m) {
        const auto receive = comm.Receive(kAnyPeer, 5, 100);
        const auto size = receive->Wait();
        ASSERT_TRUE(size.ok()) << size.status().ToString();
        ASSERT_EQ(*size, 2u);
        EXPECT_EQ(receive->bytes()[0], receive->from());
        came[receive->from()].push_back(receive->bytes()[1]);
      }
      for (const auto& send : sends) ASSERT_TRUE(send->Wait().ok());
      EXPECT_EQ(came.size(), static_cast<size_t>(world - 1));
      for (const auto& [from, numbers] : came) EXPECT_EQ(numbers, (Bytes{0, 1, 2}));
    });
  }
}

TEST(AnyPeer, ADeadlineEndsTheWaitAndNotTheMessage) {
  RunWorld(World(2), [](Communicator& comm) {
    if (comm.rank() == 0) {
      ASSERT_TRUE(comm.Barrier().ok());
      ASSERT_TRUE(comm.Send(1, 0, Bytes(1000, 3))->Wait().ok());
      return;
    }
    const auto one = comm.Receive(0, 0, 2000), any = comm.Receive(kAnyPeer, 1, 10);
    EXPECT_FALSE(one->WaitUntil(DeadlineIn(milliseconds(10))).value());
    EXPECT_FALSE(any->WaitUntil(DeadlineIn(milliseconds(10))).value());
    ASSERT_TRUE(comm.Barrier().ok());
    EXPECT_TRUE(one->WaitUntil(DeadlineIn(std::chrono::seconds(60))).value());
    EXPECT_TRUE(one->WaitUntil(Deadline::clock::now()).value());  // and again
    EXPECT_EQ(one->Wait().value(), 1000u);
    EXPECT_TRUE(std::ranges::equal(one->bytes(), Bytes(1000, 3)));
    EXPECT_EQ(comm.traffic().bytes_down, 1000 + kMessageHeaderBytes);
  });
}

// The emulated link is slower than the network beneath: a message has come when it would have.
TEST(AnyPeer, ADeadlineHoldsForTheEmulatedLink) {
  CommunicatorOptions options = World(2);
  options.link = LinkSpec{8e6, 0.2};
  RunWorld(options, [](Communicator& comm) {
    if (comm.rank() == 0) {
      ASSERT_TRUE(comm.Barrier().ok());
      ASSERT_TRUE(comm.Send(1, 0, Bytes(1000))->Wait().ok());
      ASSERT_TRUE(comm.Barrier().ok());
      return;
    }
    const auto receive = comm.Receive(0, 0, 1000);
    const auto begin = Deadline::clock::now();
    ASSERT_TRUE(comm.Barrier().ok());
    EXPECT_FALSE(receive->WaitUntil(begin + milliseconds(50)).value());
    EXPECT_TRUE(receive->WaitUntil(begin + std::chrono::seconds(60)).value());
    EXPECT_EQ(receive->Wait().value(), 1000u);
    ASSERT_TRUE(comm.Barrier().ok());
  });
}

TEST(AnyPeer, WhatWasSentBeforeAWorkerLeftStillComes) {
  RunWorld(World(3), [](Communicator& comm) {
    if (comm.rank() > 0) {
      ASSERT_TRUE(comm.Send(0, 0, Bytes(3))->Wait().ok());
      return;  // and leaves
    }
    std::this_thread::sleep_for(milliseconds(800));
    for (int m = 0; m < 2; ++m) {
      const auto receive = comm.Receive(kAnyPeer, 0, 10);
      const auto size = receive->Wait();
      ASSERT_TRUE(size.ok()) << size.status().ToString();
      EXPECT_EQ(*size, 3u);
    }
  });
}

TEST(AnyPeer, WaitsNoLongerWhenAllOthersHaveLeft) {
  RunWorld(World(3), [](Communicator& comm) {
    ASSERT_TRUE(comm.Barrier().ok());
    if (comm.rank() > 0) return;
    const auto receive = comm.Receive(kAnyPeer, 0, 10);
    const Status status = receive->WaitUntil(kNoDeadline).status();
    EXPECT_EQ(receive->Wait().status().message(), status.message());
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("has left (it needs the others no more) while worker 0 "
                                    "still waits for it"),
              std::string::npos)
        << status.ToString();
  });
}

TEST(AnyPeer, ALostWorkerEndsTheWaitAndIsNamed) {
  MemoryNetwork network;
  std::vector<Status> ends(2);
  RunWorld(
      HostedWorldOptions(3, std::chrono::seconds(2)),
      [&](Communicator& comm) {
        ASSERT_TRUE(comm.Barrier().ok());
        if (comm.rank() == 2) return network.Kill(2);
        ends[static_cast<size_t>(comm.rank())] = comm.Receive(kAnyPeer, 0, 10)->Wait().status();
      },
      &network);
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), StatusCode::kUnavailable);
    EXPECT_NE(end.message().find("worker 2"), std::string::npos) << end.ToString();
  }
}

TEST(AnyPeer, AWorkerAloneHasNone) {
  auto comm = Communicator::Connect({}).value();
  EXPECT_EQ(comm->Receive(kAnyPeer, 0, 1)->Wait().status().message(),
            "a job of one worker has no peer");
}

}  // namespace
}  // namespace elastiquant
