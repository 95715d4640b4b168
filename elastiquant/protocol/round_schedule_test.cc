#include "elastiquant/protocol/round_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>

namespace elastiquant {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using RoundKind = FragmentAction::Kind;

TEST(RoundScheduleTest, DiLoCoSendsAndAppliesEverythingAfterEachRound) {
  const auto schedule = RoundSchedule::Make({.every = 4}).value();
  EXPECT_THAT(schedule.After(3), IsEmpty());
  EXPECT_THAT(schedule.After(4), ElementsAre(FragmentAction{RoundKind::kSend, 0, 0},
                                             FragmentAction{RoundKind::kApply, 0, 0}));
  EXPECT_THAT(schedule.After(8), ElementsAre(FragmentAction{RoundKind::kSend, 0, 1},
                                             FragmentAction{RoundKind::kApply, 0, 1}));
  EXPECT_THAT(schedule.AtEnd(8), IsEmpty());
  EXPECT_THAT(schedule.AtEnd(9), ElementsAre(FragmentAction{RoundKind::kSend, 0, 2},
                                             FragmentAction{RoundKind::kApply, 0, 2}));
}

TEST(RoundScheduleTest, FragmentsTakeTurnsAndAreAppliedLater) {
  const auto schedule = RoundSchedule::Make({.every = 6, .fragments = 2, .delay = 2}).value();
  EXPECT_THAT(schedule.After(3), ElementsAre(FragmentAction{RoundKind::kSend, 0, 0}));
  EXPECT_THAT(schedule.After(5), ElementsAre(FragmentAction{RoundKind::kApply, 0, 0}));
  EXPECT_THAT(schedule.After(6), ElementsAre(FragmentAction{RoundKind::kSend, 1, 0}));
  EXPECT_TRUE(schedule.IsUnderWay(1, 6));
  EXPECT_TRUE(schedule.IsUnderWay(1, 7));
  EXPECT_FALSE(schedule.IsUnderWay(1, 8));
  EXPECT_THAT(schedule.After(8), ElementsAre(FragmentAction{RoundKind::kApply, 1, 0}));
  EXPECT_THAT(schedule.After(9), ElementsAre(FragmentAction{RoundKind::kSend, 0, 1}));
}

TEST(RoundScheduleTest, RefusesWhatCannotBe) {
  EXPECT_FALSE(RoundSchedule::Make({.every = 0}).ok());
  EXPECT_FALSE(RoundSchedule::Make({.every = 4, .fragments = 5}).ok());
  EXPECT_FALSE(RoundSchedule::Make({.every = 4, .fragments = 0}).ok());
  EXPECT_FALSE(RoundSchedule::Make({.every = 4, .delay = 5}).ok());
  EXPECT_FALSE(RoundSchedule::Make({.every = 4, .delay = -1}).ok());
}

TEST(RoundScheduleTest, RoundsGrowAsTheRateFalls) {
  const auto rate_of = [](int64_t step) { return step < 10 ? .4 : step < 30 ? .2 : 0; };
  EXPECT_THAT(GrowingRounds(4, 2, .4, 100, rate_of), ElementsAre(4, 8, 12, 28, 44, 100));
  EXPECT_THAT(GrowingRounds(4, 1, .4, 60, rate_of), ElementsAre(4, 8, 12, 20, 28, 36, 60));
  EXPECT_THAT(GrowingRounds(4, 0, .4, 100, rate_of), IsEmpty());
  // What is left at the end is no round: the run's end sends it.
  EXPECT_THAT(GrowingRounds(4, 2, .4, 10, rate_of), ElementsAre(4, 8));

  const std::vector<RoundPhase> phases = {{.from = 10, .every = 4}, {.from = 16, .every = 2}};
  EXPECT_THAT(PhasedRounds(8, phases, 21), ElementsAre(8, 16, 18, 20, 22));
  EXPECT_THAT(PhasedRounds(8, {}, 21), IsEmpty());

  const auto schedule = RoundSchedule::Make({.every = 4, .ends = {4, 12}}).value();
  for (const int64_t step : {4, 12, 16, 20}) {
    EXPECT_EQ(schedule.After(step).size(), 2u) << step;
  }
  for (const int64_t step : {3, 8, 11, 13, 17}) {
    EXPECT_THAT(schedule.After(step), IsEmpty()) << step;
  }
  EXPECT_EQ(schedule.After(16)[0], (FragmentAction{RoundKind::kSend, 0, 2}));
  EXPECT_FALSE(RoundSchedule::Make({.every = 4, .ends = {4, 7}}).ok());
}

// Whatever the options, each send is followed by its apply before the fragment is sent again,
// every fragment is sent once a round, rounds count up from 0, and the end leaves nothing
// under way.
TEST(RoundScheduleTest, EverySendIsAppliedOnceBeforeTheNext) {
  for (int64_t every = 1; every <= 9; ++every) {
    for (size_t fragments = 1; fragments <= static_cast<size_t>(every); ++fragments) {
      for (int64_t delay = 0; delay <= every; ++delay) {
        for (int64_t last : {1, 7, 20, 27, 61}) {
          // The last of these has rounds that grow and shrink.
          std::vector<int64_t> ends;
          for (int64_t more : {0, 3, 1, 7, 0, 2}) {
            if (last > 27) ends.push_back((ends.empty() ? 0 : ends.back()) + every + more);
          }
          const auto schedule =
              RoundSchedule::Make(
                  {.every = every, .fragments = fragments, .delay = delay, .ends = ends})
                  .value();
          std::map<size_t, int64_t> sent, applied;
          const auto take = [&](const FragmentAction& action) {
            if (action.kind == RoundKind::kSend) {
              ASSERT_EQ(sent[action.fragment], applied[action.fragment]);
              ASSERT_EQ(action.round, sent[action.fragment]++);
            } else {
              ASSERT_EQ(action.round, applied[action.fragment]++);
              ASSERT_EQ(sent[action.fragment], applied[action.fragment]);
            }
          };
          for (int64_t step = 1; step <= last; ++step) {
            for (const FragmentAction& action : schedule.After(step)) take(action);
            for (size_t f = 0; f < fragments; ++f) {
              EXPECT_EQ(schedule.IsUnderWay(f, step), sent[f] > applied[f]);
              if (ends.empty()) {
                EXPECT_LE(std::abs(sent[f] - step / every), 1);
              }
            }
          }
          for (const FragmentAction& action : schedule.AtEnd(last)) take(action);
          for (size_t f = 0; f < fragments; ++f) {
            EXPECT_EQ(sent[f], applied[f]);
            EXPECT_GE(sent[f], 1);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace elastiquant
