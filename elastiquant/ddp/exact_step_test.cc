#include "elastiquant/ddp/exact_step.h"

#include <gtest/gtest.h>

namespace elastiquant {
namespace {

TEST(ExactStep, EndsWithTheLastSumInAnyOrder) {
  ExactStep step;
  EXPECT_FALSE(step.is_under_way());
  step.Begin();
  EXPECT_TRUE(step.is_under_way());
  step.StartSum(/*last=*/false);
  EXPECT_FALSE(step.FinishSum(true)) << "more are to come";
  step.StartSum(false);
  step.StartSum(true);
  EXPECT_EQ(step.sums(), 2u);
  EXPECT_FALSE(step.FinishSum(true));
  EXPECT_TRUE(step.FinishSum(true));
  EXPECT_TRUE(step.all_finite());
}

TEST(ExactStep, KeepsItsFirstFailureAndDoesNotEndWell) {
  ExactStep step;
  step.Begin();
  for (const bool last : {false, false, true}) step.StartSum(last);
  step.FailSum(Internal("first"));
  step.FailSum(Internal("second"));
  EXPECT_FALSE(step.FinishSum(false));
  EXPECT_EQ(step.sums(), 0u);
  EXPECT_EQ(step.failure().message(), "first");
  EXPECT_FALSE(step.all_finite());
}

TEST(ExactStep, BeginsAnewButForTheRoll) {
  ExactStep step;
  step.Begin();
  step.StartSum(true);
  step.FailSum(Internal("lost"));
  step.SetRollIsDue(true);
  step.End();
  EXPECT_FALSE(step.is_under_way());
  step.Begin();
  EXPECT_TRUE(step.failure().ok());
  EXPECT_TRUE(step.all_finite());
  EXPECT_EQ(step.sums(), 0u);
  EXPECT_TRUE(step.roll_is_due());
}

}  // namespace
}  // namespace elastiquant
