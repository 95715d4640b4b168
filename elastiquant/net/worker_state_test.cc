#include "elastiquant/net/worker_state.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

TEST(WorkerState, SurvivesItsEncoding) {
  const WorkerState state{.beats = 7,
                          .ended = 1234567890123,
                          .waits_for = {0, 12},
                          .released = {3},
                          .activity = "in backward:\nof a, b",
                          .departure = {}};
  const WorkerState back = WorkerState::Parse(state.Encode());
  EXPECT_EQ(back.beats, state.beats);
  EXPECT_EQ(back.ended, state.ended);
  EXPECT_EQ(back.waits_for, state.waits_for);
  EXPECT_EQ(back.released, state.released);
  EXPECT_EQ(back.activity, state.activity);
  EXPECT_FALSE(back.departure.has_value());
}

TEST(WorkerState, TellsWhatADepartedWorkerHasSent) {
  WorkerState state;
  state.departure = Departure{"its script ended", {{0, 0}, {5, 6}, {7, 1ull << 40}}};
  EXPECT_FALSE(WorkerState::Parse(state.Encode()).gone);
  state.gone = true;
  const WorkerState back = WorkerState::Parse(state.Encode());
  ASSERT_TRUE(back.departure.has_value());
  EXPECT_TRUE(back.gone);
  EXPECT_EQ(back.departure->why, "its script ended");
  ASSERT_EQ(back.departure->accounts.size(), 3u);
  EXPECT_EQ(back.departure->accounts[1].sent, 5u);
  EXPECT_EQ(back.departure->accounts[1].received, 6u);
  EXPECT_EQ(back.departure->accounts[2].received, 1ull << 40);
  EXPECT_TRUE(back.waits_for.empty());
}

WorkerState Waiting(std::set<int> ranks) {
  return {.waits_for = std::move(ranks), .activity = "in backward"};
}

TEST(FindStall, BlamesTheWorkerThatWaitsForNobody) {
  std::vector<WorkerState> states{Waiting({1}), Waiting({2}), Waiting({})};
  states[2].activity = "between two backwards";
  const Stall stall =
      FindStall(states, std::vector<milliseconds>(3), 0, {}, "9 s (stall_timeout)");
  EXPECT_EQ(stall.culprit, 2);
  EXPECT_EQ(stall.words,
            "worker 2 made no progress while it was between two backwards: worker 1 has waited "
            "for it for 9 s (stall_timeout)");
}

TEST(FindStall, OfSeveralTheOneThatStandsStillForLongest) {
  const std::vector<WorkerState> states{Waiting({1, 2, 3}), Waiting({}), Waiting({}),
                                        Waiting({})};
  const std::vector<milliseconds> still{
      {}, milliseconds(10), milliseconds(99), milliseconds(20)};
  EXPECT_EQ(FindStall(states, still, 0, {}, "9 s").culprit, 2);
}

TEST(FindStall, NamesBothEndsOfABrokenPath) {
  // Worker 0 waits because the others cannot get on.
  const std::vector<WorkerState> states{Waiting({1, 2}), Waiting({2}), Waiting({1})};
  for (const int rank : {0, 1, 2}) {
    const Stall stall = FindStall(states, std::vector<milliseconds>(3), rank, {}, "9 s");
    EXPECT_EQ(stall.culprit, 1);
    EXPECT_NE(stall.words.find("workers 1 and 2 have waited for each other for 9 s"),
              std::string::npos)
        << stall.words;
  }
}

TEST(FindStall, SaysWhoWaitsInACircle) {
  const std::vector<WorkerState> states{Waiting({1}), Waiting({2}), Waiting({0})};
  EXPECT_NE(FindStall(states, std::vector<milliseconds>(3), 1, {}, "9 s").words.find("0,1,2"),
            std::string::npos);
}

TEST(Ledger, ClosesOnlyWhenNothingIsToCome) {
  Ledger ledger(2);
  EXPECT_TRUE(ledger.Begin(1, Way::kReceive));
  EXPECT_TRUE(ledger.Begin(1, Way::kSend));
  EXPECT_FALSE(ledger.CloseIfIdle());
  EXPECT_TRUE(ledger.receives_from(1));
  ledger.End(1, Way::kReceive);
  EXPECT_TRUE(ledger.CloseIfIdle());
  EXPECT_FALSE(ledger.Begin(1, Way::kSend));
  EXPECT_EQ(ledger.accounts()[1].sent, 1u);
  EXPECT_EQ(ledger.accounts()[1].received, 1u);
  EXPECT_EQ(ledger.ended(), 1u);
}

}  // namespace
}  // namespace elastiquant
