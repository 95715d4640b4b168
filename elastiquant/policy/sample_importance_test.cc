#include "elastiquant/policy/sample_importance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "elastiquant/base/random.h"

namespace elastiquant::policy {
namespace {

// Scores of a batch of a run in which they fall, as they do when a model learns.
std::vector<double> ScoresOf(uint64_t step, size_t count) {
  const LaneKeys keys = MakeLaneKeys(DeriveKey(3, step, 0, 0));
  std::vector<double> scores(count);
  const double scale = std::exp(-static_cast<double>(step) / 2000);
  for (size_t i = 0; i < count; ++i) {
    const double uniform = UniformFloat(RandomBits(keys, static_cast<uint32_t>(i)));
    scores[i] = -scale * std::log(1 - uniform);
  }
  return scores;
}

TEST(SampleImportanceTest, SendsAllUnlessToldOtherwise) {
  SampleImportance importance({});
  EXPECT_THAT(importance.Chances(std::vector<double>{0, 1, 2}), testing::Each(1));
  EXPECT_TRUE(importance.Chances({}).empty());
}

TEST(SampleImportanceTest, ThresholdSendsTheLargeOnes) {
  SampleImportance importance({.skipped = .5});
  const std::vector<double> scores = {4, 1, 3, 2};
  EXPECT_THAT(importance.Chances(scores), testing::ElementsAre(1, 0, 1, 0));
  SampleImportance other({.skipped = .25});
  EXPECT_THAT(other.Chances(scores), testing::ElementsAre(1, 0, 1, 1));
}

TEST(SampleImportanceTest, AsManyAreSkippedAsWereAskedFor) {
  for (const bool unbiased : {false, true}) {
    for (const double skipped : {.1, .4, .8}) {
      SampleImportance importance({skipped, unbiased});
      double sent = 0, all = 0;
      for (uint64_t step = 0; step < 2000; ++step) {
        for (const double chance : importance.Chances(ScoresOf(step, 32))) sent += chance;
        all += 32;
      }
      EXPECT_NEAR(sent / all, 1 - skipped, .02) << unbiased << " " << skipped;
    }
  }
}

TEST(SampleImportanceTest, WhatIsSentByChanceHasTheRightMean) {
  SampleImportance importance({.skipped = .5, .unbiased = true});
  const LaneKeys keys = MakeLaneKeys(DeriveKey(9, 0, 0, 0));
  uint32_t draw = 0;
  double all = 0, sent = 0, squares = 0;
  for (uint64_t step = 0; step < 1000; ++step) {
    const std::vector<double> scores = ScoresOf(step, 32);
    const std::vector<double> chances = importance.Chances(scores);
    for (size_t i = 0; i < scores.size(); ++i) {
      all += scores[i];
      if (!(UniformFloat(RandomBits(keys, draw++)) < chances[i])) continue;
      sent += scores[i] / chances[i];
      squares += (1 - chances[i]) * std::pow(scores[i] / chances[i], 2);
    }
  }
  EXPECT_NEAR(sent, all, 4 * std::sqrt(squares));
}

TEST(SampleImportanceTest, OddScoresDoNoHarm) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool unbiased : {false, true}) {
    SampleImportance importance({.skipped = .5, .unbiased = unbiased});
    for (int i = 0; i < 10; ++i) {
      for (const auto& scores : std::vector<std::vector<double>>{
               {0, 0, 0}, {nan, nan}, {infinity, 1, 0}, {1e-310, 1e308}}) {
        for (const double chance : importance.Chances(scores)) {
          EXPECT_GE(chance, 0);
          EXPECT_LE(chance, 1);
        }
      }
    }
    EXPECT_THAT(importance.Chances(std::vector<double>{nan}), testing::ElementsAre(1));
  }
}

TEST(SampleImportanceTest, GoesOnFromItsState) {
  SampleImportance one({.skipped = .4}), other({.skipped = .4});
  for (uint64_t step = 0; step < 30; ++step) one.Chances(ScoresOf(step, 16));
  ASSERT_TRUE(other.LoadState(one.SaveState()).ok());
  EXPECT_EQ(one.Chances(ScoresOf(30, 16)), other.Chances(ScoresOf(30, 16)));
  EXPECT_FALSE(other.LoadState({}).ok());
  EXPECT_FALSE(other.LoadState(std::vector<double>{1, 0, 2}).ok());
}

}  // namespace
}  // namespace elastiquant::policy
