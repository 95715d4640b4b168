#include "elastiquant/theory/minimax_levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "elastiquant/theory/theory_test_util.h"
#include "elastiquant/theory/worst_case.h"

namespace elastiquant::theory {
namespace {

TEST(MinimaxLevels, BeatAllOtherFamilies) {
  for (double q : {1.0, 2.0, kInfinity}) {
    for (int bits : {3, 4, 8}) {
      for (double d : {2.0, 64.0, 512.0, 8192.0, 1e6}) {
        const MinimaxLevels found = *FindMinimaxLevels(bits, d, q);
        const LevelSet exponential = *ExponentialLevels(bits, ExactOptimalRatio(bits, d, q));
        EXPECT_EQ(found.levels.count, LevelsOfBits(bits));
        EXPECT_LT(found.variance, WorstCaseVariance(exponential, d, q)) << bits << d << q;
        EXPECT_LE(found.variance, WorstCaseVariance(UniformLevels(bits), d, q) * (1 + 1e-6));
      }
    }
  }
}

// Elastic levels are nearly optimal: at 3 and 4 bits the best exponential ones are within a
// fifth of the best of all (l2), while uniform ones are far from it.
TEST(MinimaxLevels, ShowHowNearlyOptimalElasticLevelsAre) {
  double most = 0;
  for (int bits : {3, 4}) {
    for (double d : {512.0, 8192.0, 65536.0}) {
      const double best = FindMinimaxLevels(bits, d, 2)->variance;
      const LevelSet elastic = *ExponentialLevels(bits, OptimalRatio(InnerLevels(bits), d, 2));
      most = std::max(most, WorstCaseVariance(elastic, d, 2) / best);
      EXPECT_GT(WorstCaseVariance(UniformLevels(bits), d, 2) / best, 7);
    }
  }
  RecordProperty("most_above_the_least", std::to_string(most));
  EXPECT_LT(most, 1.2);
}

// No neighbour of them is better: each level moved alone, and all at random.
TEST(MinimaxLevels, CannotBeImprovedByMovingLevels) {
  std::mt19937 random(2);
  std::normal_distribution<double> normal;
  for (double q : {1.0, 2.0, kInfinity}) {
    const MinimaxLevels found = *FindMinimaxLevels(4, 512, q);
    const auto variance_of = [&](const std::vector<float>& upper) {
      const auto levels = ExplicitLevels(4, upper);
      return levels.ok() ? WorstCaseVariance(*levels, 512, q) : kInfinity;
    };
    const std::vector<float> upper(found.levels.span().begin() + 1, found.levels.span().end());
    for (size_t j = 0; j + 1 < upper.size(); ++j) {
      for (const float factor : {.98f, 1.02f}) {
        auto moved = upper;
        moved[j] *= factor;
        EXPECT_GE(variance_of(moved), found.variance * (1 - 1e-6)) << q << " " << j;
      }
    }
    for (int i = 0; i < 300; ++i) {
      auto moved = upper;
      for (size_t j = 0; j + 1 < moved.size(); ++j) {
        moved[j] *= static_cast<float>(std::exp(.03 * normal(random)));
      }
      EXPECT_GE(variance_of(moved), found.variance * (1 - 1e-6)) << q;
    }
  }
}

TEST(MinimaxLevels, OtherNormsAreRefused) {
  EXPECT_EQ(FindMinimaxLevels(4, 512, 3).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FindMinimaxLevels(9, 512, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FindMinimaxLevels(4, 1, 2).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace elastiquant::theory
