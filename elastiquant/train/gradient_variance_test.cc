#include "elastiquant/train/gradient_variance.h"

#include <gtest/gtest.h>

namespace elastiquant {
namespace {

TEST(GradientVarianceTest, IsThatOfEachCoordinateInTheMean) {
  GradientVarianceSums sums(3);
  for (const float x : {1.0F, 3.0F}) {
    const std::vector<float> front = {x, 2}, back = {-x};
    sums.Add(0, front);
    sums.Add(2, back);
  }
  const GradientVariance found = sums.Of(2);
  EXPECT_DOUBLE_EQ(found.variance, (1. + 0 + 1) / 3);
  EXPECT_NEAR(found.normalised, (.2 + 0 + .2) / 3, 1e-7);
}

TEST(GradientVarianceTest, ZerosHaveNone) {
  GradientVarianceSums sums(2);
  const std::vector<float> zeros = {0, 0};
  sums.Add(0, zeros);
  EXPECT_EQ(sums.Of(1).variance, 0);
  EXPECT_EQ(sums.Of(1).normalised, 0);
  EXPECT_EQ(GradientVarianceSums(0).Of(1).variance, 0);
}

TEST(GradientVarianceTest, EqualLargeEstimatesHaveNoneInSpiteOfRounding) {
  GradientVarianceSums sums(1);
  const std::vector<float> value = {1.1e18F};
  for (int i = 0; i < 10; ++i) sums.Add(0, value);
  EXPECT_GE(sums.Of(10).variance, 0);
  EXPECT_LT(sums.Of(10).normalised, 1e-12);
}

}  // namespace
}  // namespace elastiquant
