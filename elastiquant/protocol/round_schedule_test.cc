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

// Whatever the options, each send is followed by its apply before the fragment is sent again,
// every fragment is sent once a round, rounds count up from 0, and the end leaves nothing
// under way.
TEST(RoundScheduleTest, EverySendIsAppliedOnceBeforeTheNext) {
  for (int64_t every = 1; every <= 9; ++every) {
    for (size_t fragments = 1; fragments <= static_cast<size_t>(every); ++fragments) {
      for (int64_t delay = 0; delay <= every; ++delay) {
        for (int64_t last : {1, 7, 20, 27}) {
          const auto schedule =
              RoundSchedule::Make({.every = every, .fragments = fragments, .delay = delay})
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
              EXPECT_LE(std::abs(sent[f] - step / every), 1);
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
