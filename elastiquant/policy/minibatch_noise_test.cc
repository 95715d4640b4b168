#include "elastiquant/policy/minibatch_noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "elastiquant/policy/policy_testing.h"

namespace elastiquant::policy {
namespace {

TEST(MinibatchNoiseTest, IsTheSampleVariance) {
  // Two workers with 3 and 5: the sample variance is 2.
  const double halves[] = {.5, .5};
  EXPECT_NEAR(MinibatchNoise(halves, 17, 16), 2, 1e-12);
  // With the mean's compression error in its square.
  EXPECT_NEAR(MinibatchNoise(halves, 17, 16.25, .25), 2, 1e-12);
  EXPECT_EQ(MinibatchNoise(halves, 17, 18), 0);
}

TEST(MinibatchNoiseTest, NeedsTwoWorkersThatCount) {
  const double one[] = {1}, other[] = {1, 0};
  EXPECT_TRUE(std::isnan(MinibatchNoise(one, 1, 1)));
  EXPECT_TRUE(std::isnan(MinibatchNoise(other, 1, 1)));
}

TEST(MinibatchNoiseTest, IsUnbiasedForAnyWeights) {
  for (const std::vector<double>& weights : std::vector<std::vector<double>>{
           {.5, .5}, {.25, .25, .25, .25}, {.7, .2, .1}, {.6, .1, .1, .1, .1}}) {
    Draws draws(31, weights.size());
    constexpr size_t kCoordinates = 20;
    constexpr int kRounds = 4000;
    double sum = 0;
    for (int t = 0; t < kRounds; ++t) {
      double squares = 0, square_of_mean = 0;
      for (size_t i = 0; i < kCoordinates; ++i) {
        const double expected = .3 * static_cast<double>(i);
        double mean = 0;
        for (const double p : weights) {
          const double g = expected + 1.5 * draws.Normal();
          squares += p * g * g;
          mean += p * g;
        }
        square_of_mean += mean * mean;
      }
      sum += MinibatchNoise(weights, squares, square_of_mean) / kRounds;
    }
    const double variance = kCoordinates * 1.5 * 1.5;
    // Five standard errors of the case with the fewest degrees of freedom.
    EXPECT_NEAR(sum / variance, 1, 5 * std::sqrt(2.0 / kCoordinates / kRounds * 2));
  }
}

}  // namespace
}  // namespace elastiquant::policy
