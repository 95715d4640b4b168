#include "elastiquant/data/dirichlet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace elastiquant {
namespace {

// The first two moments of Gamma(alpha) are alpha and alpha (alpha + 1).
TEST(DrawLogGammas, HasTheMomentsOfGamma) {
  constexpr size_t kDraws = 40000;
  for (const double alpha : {0.1, 0.5, 1.0, 2.5, 100.0}) {
    double first = 0, second = 0;
    for (const double log : DrawLogGammas({17}, alpha, kDraws)) {
      const double value = std::exp2(log);
      first += value / kDraws;
      second += value * value / kDraws;
    }
    // Variances of the two sample means, from the third and fourth moments.
    const double m1 = alpha, m2 = m1 * (alpha + 1), m4 = m2 * (alpha + 2) * (alpha + 3);
    EXPECT_NEAR(first, m1, 5 * std::sqrt((m2 - m1 * m1) / kDraws)) << alpha;
    EXPECT_NEAR(second, m2, 5 * std::sqrt((m4 - m2 * m2) / kDraws)) << alpha;
  }
}

// The parts of a Dirichlet distribution have E[sum p^2] = (alpha + 1) / (n alpha + 1).
TEST(DrawLogGammas, SpreadsPartsAsDirichletDoes) {
  constexpr int kDraws = 4000, kParts = 10;
  for (const double alpha : {0.01, 0.3, 1.0, 20.0}) {
    double mean = 0;
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      const std::vector<double> logs = DrawLogGammas(DeriveKey(5, draw, 0, 0), alpha, kParts);
      const double sum = LogOfSum(logs);
      double parts = 0;
      for (const double log : logs) {
        parts += std::exp2(log - sum);
        mean += std::exp2(2 * (log - sum)) / kDraws;
      }
      EXPECT_NEAR(parts, 1, 1e-12);
    }
    EXPECT_NEAR(mean, (alpha + 1) / (kParts * alpha + 1), 0.015) << alpha;
  }
}

TEST(DrawLogGammas, StaysFiniteWhereGammasAreTooSmallForDoubles) {
  const std::vector<double> logs = DrawLogGammas({3}, 1e-3, 1000);
  for (const double log : logs) ASSERT_TRUE(std::isfinite(log));
  EXPECT_LT(*std::ranges::min_element(logs), -1100);
}

// Frozen: who has which samples depends on them to the last bit.
TEST(DrawLogGammas, HasTheSameBitsOnEveryMachine) {
  const std::vector<double> logs = DrawLogGammas(DeriveKey(1, 2, 3, 4), 0.3, 2);
  EXPECT_EQ(logs[0], -0x1.a2ec8d9a9be49p-1);
  EXPECT_EQ(logs[1], 0x1.719e440a4b0b4p-1);
}

}  // namespace
}  // namespace elastiquant
