#include "elastiquant/net/rendezvous.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

// What the rendezvous gives the worker of this rank.
Status Meet(CommunicatorOptions options, int rank) {
  options.rank = rank;
  const std::shared_ptr<Store> store =
      options.network
          ->ConnectStore(options.store_host, options.store_port, options.job + "/",
                         options.connect_timeout)
          .value();
  return Rendezvous(store, options).status();
}

// The same for several at once.
std::vector<Status> MeetAll(const CommunicatorOptions& options, const std::vector<int>& ranks) {
  std::vector<Status> met(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] { met[i] = Meet(options, ranks[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return met;
}

// All have been there then, but never at once.
TEST(Rendezvous, WhoComesWhenTheOthersHaveGivenUpIsToldSo) {
  CommunicatorOptions options = WorldOptions(3);
  options.connect_timeout = milliseconds(1000);
  for (const Status& status : MeetAll(options, {0, 1})) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  }
  const Status late = Meet(options, 2);
  EXPECT_EQ(late.code(), StatusCode::kUnavailable);
  EXPECT_NE(late.message().find("of 3 workers these did not come within 1 s: 2"),
            std::string::npos)
      << late.ToString();
}

// What stands does not change: all others have gone on.
TEST(Rendezvous, OneTooManyIsRefusedAloneOnceAllHaveMet) {
  const CommunicatorOptions options = WorldOptions(2);
  for (const Status& status : MeetAll(options, {0, 1})) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  EXPECT_EQ(Meet(options, 1).code(), StatusCode::kInvalidArgument);
}

TEST(Rendezvous, WhoComesWhenOneWasRefusedIsToldWhy) {
  const CommunicatorOptions options = WorldOptions(2);
  const std::vector<Status> met = MeetAll(options, {1, 1});
  for (const Status& status : {met[0], met[1], Meet(options, 0)}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("two workers claim rank 1"), std::string::npos)
        << status.ToString();
  }
}

TEST(Rendezvous, WhoeverComesSecondIsRefusedAloneIfTheOthersAreToGoOn) {
  CommunicatorOptions options = WorldOptions(2);
  options.refuses_alone = true;
  const std::vector<Status> met = MeetAll(options, {0, 1, 1});
  EXPECT_TRUE(met[0].ok()) << met[0].ToString();
  const Status& refused = met[1].ok() ? met[2] : met[1];
  EXPECT_NE(met[1].ok(), met[2].ok());
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("another process is worker 1 already"), std::string::npos)
      << refused.ToString();
}

// Whoever calls a frozen store waits without limit, and nobody watches this worker yet.
TEST(Rendezvous, AStoreThatStandsStillIsNotWaitedForWithoutLimit) {
  MemoryNetwork network;
  CommunicatorOptions options = HostedWorldOptions(2, milliseconds(1000));
  const auto host = network.At(0)->HostStore(options.store_port, Reach::kThisMachine).value();
  network.Freeze(0);
  options.network = network.At(1);
  options.rank = 1;
  options.connect_timeout = milliseconds(100);
  const Status status = Communicator::Connect(options).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("does not answer: worker 0, which hosts it"),
            std::string::npos)
      << status.ToString();
}

}  // namespace
}  // namespace elastiquant
