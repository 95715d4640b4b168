#include "elastiquant/train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace elastiquant {
namespace {

TEST(ScheduleTest, ConstantStaysAtItsPeak) {
  const Schedule schedule{.kind = ScheduleKind::kConstant, .peak = 0.3, .total_steps = 10};
  for (int64_t step : {0, 5, 9, 1000}) EXPECT_EQ(LearningRate(schedule, step), 0.3);
}

TEST(Schedule, IsStableAndDecaysInTheEnd) {
  const Schedule schedule{.kind = ScheduleKind::kWsd,
                          .peak = 0.4,
                          .total_steps = 100,
                          .warmup_steps = 4,
                          .decay_part = 0.25};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 1), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 4), 0.4);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 75), 0.4);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 80), 0.4 * 20 / 25);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 99), 0.4 / 25);
  EXPECT_EQ(LearningRate(schedule, 100), 0);
  EXPECT_EQ(LearningRate(schedule, 1000), 0);
}

TEST(ScheduleTest, WarmUpRisesLinearlyToThePeak) {
  const Schedule schedule{
      .kind = ScheduleKind::kConstant, .peak = 0.4, .total_steps = 100, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 2), 0.3);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 0.4);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 4), 0.4);
}

TEST(ScheduleTest, StepFallsAtEachMilestone) {
  const Schedule schedule{.kind = ScheduleKind::kStep, .peak = 1.0, .total_steps = 64};
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 31), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 32), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 47), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 48), 0.01);
}

TEST(ScheduleTest, CosineFollowsTheLibraryFunction) {
  const Schedule schedule{
      .kind = ScheduleKind::kCosine, .peak = 0.2, .total_steps = 1010, .warmup_steps = 10};
  for (int64_t step = 10; step < 1010; ++step) {
    const double expected =
        0.1 * (1.0 + std::cos(std::acos(-1.0) * static_cast<double>(step - 10) / 1000.0));
    EXPECT_NEAR(LearningRate(schedule, step), expected, 1e-14) << step;
  }
  EXPECT_EQ(LearningRate(schedule, 10), 0.2);
  EXPECT_EQ(LearningRate(schedule, 1010), 0.0);
}

TEST(ScheduleTest, AnUnknownKindListsTheValidOnes) {
  const auto kind = ParseScheduleKind("linear");
  ASSERT_FALSE(kind.ok());
  EXPECT_NE(kind.status().message().find("constant, step, cosine"), std::string::npos);
  EXPECT_EQ(*ParseScheduleKind("step"), ScheduleKind::kStep);
}

}  // namespace
}  // namespace elastiquant
