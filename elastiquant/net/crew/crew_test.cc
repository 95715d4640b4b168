#include "elastiquant/net/crew/crew.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/net/crew/crew_testing.h"
#include "elastiquant/net/memory/memory_network.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

void DoNothing(uint64_t) {}

// Three workers, of which one dies in its round 5.
std::vector<CrewWorld::Outcome> RunWithOneThatDies(CrewWorld& world, int victim) {
  std::vector<CrewWorld::Outcome> outcomes(3);
  for (int w = 0; w < 3; ++w) {
    const auto die = [&world, victim](uint64_t round) {
      if (round == 5) world.network().Kill(victim);
    };
    world.Start(w, w == victim ? std::function<void(uint64_t)>(die) : DoNothing,
                &outcomes[static_cast<size_t>(w)]);
  }
  world.Join();
  return outcomes;
}

TEST(CrewTest, TheOthersGoOnWithoutTheOneThatDies) {
  for (const int victim : {0, 2}) {
    CrewWorld world(3);
    const std::vector<CrewWorld::Outcome> outcomes = RunWithOneThatDies(world, victim);
    for (int w = 0; w < 3; ++w) {
      const CrewWorld::Outcome& outcome = outcomes[static_cast<size_t>(w)];
      EXPECT_EQ(outcome.status.ok(), w != victim) << outcome.status.ToString();
      if (w == victim) continue;
      EXPECT_EQ(outcome.rounds, CrewWorld::kRounds);
      EXPECT_EQ(outcome.group.size(), 2u);
    }
  }
}

// Its store may still answer: the worker may have stood still for too long.
TEST(CrewTest, NobodyGoesOnWithoutTheWorkerThatHostsTheStore) {
  CrewWorld world(3);
  world.LetWorker0HostTheStore();
  const std::vector<CrewWorld::Outcome> outcomes = RunWithOneThatDies(world, 0);
  for (const int w : {1, 2}) {
    const Status& status = outcomes[static_cast<size_t>(w)].status;
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("worker 0, which hosts the rendezvous store"),
              std::string::npos)
        << status.ToString();
  }
}

// Ranks change where a worker is lost, and names stay.
TEST(CrewTest, ErrorsNameWorkersAsTheyWereNamedAtFirst) {
  CrewWorld world(3);
  world.ForbidReturn();
  const std::vector<CrewWorld::Outcome> outcomes = RunWithOneThatDies(world, 0);
  for (const int w : {1, 2}) {
    EXPECT_EQ(outcomes[static_cast<size_t>(w)].names,
              (std::vector<std::string>{"worker 1", "worker 2"}));
  }
}

TEST(CrewTest, TwoMayDieAtOnceAndTheLastOneGoesOnAlone) {
  CrewWorld world(3);
  std::vector<CrewWorld::Outcome> outcomes(3);
  world.Start(
      0,
      [&](uint64_t round) {
        if (round != 5) return;
        world.network().Kill(0);
        world.network().Kill(1);
      },
      &outcomes[0]);
  world.Start(1, DoNothing, &outcomes[1]);
  world.Start(2, DoNothing, &outcomes[2]);
  world.Join();
  EXPECT_TRUE(outcomes[2].status.ok()) << outcomes[2].status.ToString();
  EXPECT_EQ(outcomes[2].group, std::vector<int>{2});
}

// Three workers, of which worker 1 stands still from its round 3 until the others are in
// round 10.
std::vector<CrewWorld::Outcome> RunWithOneFrozenForAWhile(CrewWorld& world) {
  std::vector<CrewWorld::Outcome> outcomes(3);
  world.StartAll(
      [&world](int w, uint64_t round) {
        if (w == 1 && round == 3) world.network().Freeze(1);
        if (w == 2 && round == 10) world.network().Thaw(1);
        // It needs some time to find out.
        if (w == 2 && round > 10) std::this_thread::sleep_for(milliseconds(100));
      },
      &outcomes);
  world.Join();
  return outcomes;
}

// It wakes up when the others have gone on, and is taken back between two of their rounds.
TEST(CrewTest, OneThatWasFrozenIsTakenBackAsANewcomer) {
  CrewWorld world(3);
  const std::vector<CrewWorld::Outcome> outcomes = RunWithOneFrozenForAWhile(world);
  for (const CrewWorld::Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.rounds, CrewWorld::kRounds);
    EXPECT_EQ(outcome.group, (std::vector<int>{0, 1, 2}));
  }
  EXPECT_LT(outcomes[1].sizes.size(), outcomes[0].sizes.size());
}

// It would break each group that it comes into.
TEST(CrewTest, OneWhoseHeartHasStoppedConnectsAnewAndStays) {
  CrewWorld world(3);
  std::vector<CrewWorld::Outcome> outcomes(3);
  world.StartAll(
      [&world](int w, uint64_t round) {
        if (w == 1 && round == 3) world.StopTheHeartOf(1);
        if (w == 2 && round > 3) std::this_thread::sleep_for(milliseconds(30));
      },
      &outcomes);
  world.Join();
  for (const CrewWorld::Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.rounds, CrewWorld::kRounds);
    EXPECT_EQ(outcome.group, (std::vector<int>{0, 1, 2}));
  }
}

TEST(CrewTest, OneThatMayNotReturnIsToldThatTheOthersHaveGoneOn) {
  CrewWorld world(3);
  world.ForbidReturn();
  const std::vector<CrewWorld::Outcome> outcomes = RunWithOneFrozenForAWhile(world);
  EXPECT_EQ(outcomes[1].status.code(), StatusCode::kUnavailable);
  EXPECT_NE(outcomes[1].status.message().find("have gone on without worker 1"),
            std::string::npos)
      << outcomes[1].status.ToString();
  for (const int w : {0, 2}) {
    const CrewWorld::Outcome& outcome = outcomes[static_cast<size_t>(w)];
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.group, (std::vector<int>{0, 2}));
  }
}

TEST(CrewTest, OneThatDiedAndIsStartedAgainIsTakenBack) {
  CrewWorld world(3);
  std::vector<CrewWorld::Outcome> outcomes(3);
  CrewWorld::Outcome again;
  std::latch later(1);
  world.StartAll(
      [&](int w, uint64_t round) {
        if (w == 0 && round == 3) world.network().Kill(0);
        if (w == 1 && round == 8) later.count_down();
        if (w == 1 && round > 8) std::this_thread::sleep_for(milliseconds(100));
      },
      &outcomes);
  world.StartAgain(0, &later, &again);
  world.Join();
  EXPECT_TRUE(again.status.ok()) << again.status.ToString();
  EXPECT_EQ(again.rounds, CrewWorld::kRounds);
  EXPECT_EQ(again.group, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(outcomes[1].group, again.group);
}

bool GaveUp(const CrewWorld::Outcome& outcome) {
  return outcome.status.code() == StatusCode::kUnavailable &&
         outcome.status.message().find(
             "groups in a row could not connect (there is no path)") != std::string::npos;
}

// Worker 3 of four dies, and then the other three cannot connect.
std::vector<CrewWorld::Outcome> RunWithABrokenPath(CrewWorld& world) {
  std::vector<CrewWorld::Outcome> outcomes(4);
  world.StartAll(
      [&world](int w, uint64_t round) {
        if (w != 3 || round != 5) return;
        world.LetNoGroupConnectOf(3);
        world.network().Kill(3);
      },
      &outcomes);
  world.Join();
  return outcomes;
}

// They would form the same group again and again.
TEST(CrewTest, OneLeavesAGroupThatCannotConnectAndTheOthersGoOn) {
  CrewWorld world(4);
  const std::vector<CrewWorld::Outcome> outcomes = RunWithABrokenPath(world);
  EXPECT_TRUE(GaveUp(outcomes[0])) << outcomes[0].status.ToString();
  for (const size_t w : {1, 2}) {
    EXPECT_TRUE(outcomes[w].status.ok()) << outcomes[w].status.ToString();
    EXPECT_EQ(outcomes[w].rounds, CrewWorld::kRounds);
    EXPECT_EQ(outcomes[w].group, (std::vector<int>{1, 2}));
  }
}

TEST(CrewTest, TheWorkerThatHostsTheStoreIsTheLastToLeaveAGroupThatCannotConnect) {
  CrewWorld world(4);
  world.LetWorker0HostTheStore();
  const std::vector<CrewWorld::Outcome> outcomes = RunWithABrokenPath(world);
  EXPECT_TRUE(GaveUp(outcomes[1])) << outcomes[1].status.ToString();
  for (const size_t w : {0, 2}) {
    EXPECT_TRUE(outcomes[w].status.ok()) << outcomes[w].status.ToString();
    EXPECT_EQ(outcomes[w].group, (std::vector<int>{0, 2}));
  }
}

// Worker 2 reaches both. It may go on without the one that it blames for the group's end, if
// that one comes late to the meeting, or without the one that gives up.
TEST(CrewTest, OneOfTwoThatCannotReachEachOtherLeaves) {
  CrewWorld world(4);
  world.ForbidReturn();
  world.Spare(2);
  const std::vector<CrewWorld::Outcome> outcomes = RunWithABrokenPath(world);
  EXPECT_NE(outcomes[0].status.ok(), outcomes[1].status.ok())
      << outcomes[0].status.ToString() << ", " << outcomes[1].status.ToString();
  EXPECT_TRUE(outcomes[2].status.ok()) << outcomes[2].status.ToString();
  EXPECT_EQ(outcomes[2].rounds, CrewWorld::kRounds);
  EXPECT_EQ(outcomes[2].group.size(), 2u);
}

// The others form their group without it in between.
TEST(CrewTest, ANewcomerToWhichThereIsNoPathGivesUp) {
  CrewWorld world(3);
  std::vector<CrewWorld::Outcome> outcomes(3);
  CrewWorld::Outcome again;
  std::latch later(1);
  world.StartAll(
      [&](int w, uint64_t round) {
        if (w == 1 && round == 3) world.network().Kill(1);
        if (w == 2 && round == 8) {
          world.LetNoGroupConnectOf(3);
          later.count_down();
        }
        // It needs some time to give up.
        if (w == 2 && round > 8) std::this_thread::sleep_for(milliseconds(200));
      },
      &outcomes);
  world.StartAgain(1, &later, &again);
  world.Join();
  EXPECT_TRUE(GaveUp(again)) << again.status.ToString();
  for (const size_t w : {0, 2}) {
    EXPECT_TRUE(outcomes[w].status.ok()) << outcomes[w].status.ToString();
    EXPECT_EQ(outcomes[w].group, (std::vector<int>{0, 2}));
  }
}

TEST(CrewTest, AStoreThatStandsStillIsNotWaitedForWithoutLimit) {
  MemoryNetwork network;
  const auto host = network.At(0)->HostStore(0, Reach::kThisMachine).value();
  network.Freeze(0);
  CrewOptions options;
  options.job.rank = 1;
  options.job.world_size = 2;
  options.job.network = network.At(1);
  options.job.store_port = host->port();
  options.job.connect_timeout = milliseconds(100);
  const Status status = Crew::Start(options).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("does not answer: worker 0, which hosts it"),
            std::string::npos)
      << status.ToString();
}

TEST(CrewTest, WhoeverComesBackWhenNobodyIsLeftSaysSo) {
  CrewWorld world(2);
  std::vector<CrewWorld::Outcome> outcomes(2);
  CrewWorld::Outcome again;
  std::latch later(1);
  world.Start(
      0,
      [&](uint64_t round) {
        if (round != 2) return;
        world.network().Kill(0);
        world.network().Kill(1);
        later.count_down();
      },
      &outcomes[0]);
  world.Start(1, DoNothing, &outcomes[1]);
  world.StartAgain(0, &later, &again);
  world.Join();
  EXPECT_EQ(again.status.code(), StatusCode::kUnavailable);
  EXPECT_NE(again.status.message().find("no worker is left"), std::string::npos)
      << again.status.ToString();
}

TEST(CrewTest, OnceTheRunIsOverNobodyNeedComeBack) {
  CrewWorld world(2);
  std::vector<CrewWorld::Outcome> outcomes(2);
  CrewWorld::Outcome again;
  std::latch later(1);
  for (int w = 0; w < 2; ++w) {
    world.Start(w, DoNothing, &outcomes[static_cast<size_t>(w)]);
  }
  world.Join();
  later.count_down();
  world.StartAgain(1, &later, &again);
  world.Join();
  EXPECT_TRUE(again.status.ok()) << again.status.ToString();
  EXPECT_EQ(again.rounds, 0u);
}

}  // namespace
}  // namespace elastiquant
