#include "elastiquant/codec/levels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace elastiquant {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

double Norm(const std::vector<double>& v, double q) {
  double sum = 0, largest = 0;
  for (double x : v) largest = std::max(largest, std::abs(x));
  if (q == kUnbounded) return largest;
  for (double x : v) sum += std::pow(std::abs(x) / largest, q);
  return largest * std::pow(sum, 1 / q);
}

// E|Q(v)-v|^2 / |v|^2 exactly: the sum of (high - r)(r - low).
double ExactVariance(const LevelSet& levels, const std::vector<double>& v, double q) {
  const double norm = Norm(v, q);
  double variance = 0, size = 0;
  for (double x : v) {
    const double r = std::abs(x) / norm;
    size_t j = 0;
    while (j + 2 < levels.count && r >= static_cast<double>(levels.values[j + 1])) ++j;
    variance += (levels.values[j + 1] - r) * (r - levels.values[j]) * norm * norm;
    size += x * x;
  }
  return variance / size;
}

TEST(Levels, Families) {
  const LevelSet half = *ExponentialLevels(3, 0.5f);
  EXPECT_EQ(std::vector<float>(half.span().begin(), half.span().end()),
            (std::vector<float>{0, .25f, .5f, 1}));
  const LevelSet uniform = UniformLevels(4);
  ASSERT_EQ(uniform.count, 8u);
  for (size_t j = 0; j < 8; ++j) EXPECT_EQ(uniform.values[j], static_cast<float>(j) / 7);
  const LevelSet smallest = *ExponentialLevels(8, 0.5f);
  EXPECT_EQ(smallest.values[1], 0x1p-126f);
  EXPECT_EQ(ExponentialLevels(2, 0.3f)->count, 2u);
}

TEST(Levels, ImpossibleOnesAreRefused) {
  const float nan = std::nanf("");
  for (float p : {0.0f, 1.0f, -0.5f, 2.0f, nan, 0.4f /* underflows */, 0.99999999f}) {
    EXPECT_EQ(ExponentialLevels(8, p).status().code(), StatusCode::kInvalidArgument) << p;
  }
  const std::vector<std::vector<float>> bad = {{},        {0.5f},          {0.5f, 0.5f, 1},
                                               {0.3f, 2}, {0.0f, 1},       {-0.5f, 1},
                                               {nan, 1},  {0.6f, 0.3f, 1}, {0.1f, nan, 1}};
  for (const auto& upper : bad) EXPECT_FALSE(ExplicitLevels(4, upper).ok());
  EXPECT_TRUE(ExplicitLevels(3, std::vector<float>{.2f, .6f, 1}).ok());
  EXPECT_FALSE(ExplicitLevels(2, std::vector<float>{.2f, .6f, 1}).ok());
  EXPECT_TRUE(ExplicitLevels(8, std::vector<float>{.2f, .6f, 1}).ok());
}

TEST(OptimalRatio, WorkedValues) {
  EXPECT_NEAR(OptimalRatio(6, 8192, 2), .407, .0011);
  EXPECT_NEAR(OptimalRatio(14, 8192, 2), .642, .0011);
  EXPECT_NEAR(OptimalRatio(126, 8192, 2), .936, .0011);
  EXPECT_NEAR(OptimalRatio(6, 512, 2), .5, .0021);
  EXPECT_NEAR(VarianceBound(std::pow(.407, 6), 1 / .407, 8192, 2), .258, .001);
  EXPECT_NEAR(VarianceBound(std::pow(.5, 6), 2, 8192, 2), .625, 1e-9);
  EXPECT_NEAR(VarianceBound(std::pow(.642, 14), 1 / .642, 8192, 2), .058, .001);
  EXPECT_NEAR(VarianceBound(std::pow(.936, 126), 1 / .936, 8192, 2), .0012, .0001);
}

TEST(OptimalRatio, NoThousandthIsBetter) {
  for (int inner : {1, 2, 6, 14, 30, 126}) {
    for (double d : {1.0, 7.0, 512.0, 8192.0, 1e6, 4e9}) {
      for (double q : {1.0, 1.5, 2.0, 3.0, kUnbounded}) {
        const double best = OptimalRatio(inner, d, q);
        const auto bound = [&](double p) {
          return VarianceBound(std::pow(p, inner), 1 / p, d, q);
        };
        for (int k = 1; k < 1000; ++k) {
          EXPECT_GE(bound(k / 1000.0), bound(best) * (1 - 1e-6))
              << inner << " " << d << " " << q << ": " << best << " and " << k;
        }
      }
    }
  }
}

TEST(VarianceBound, HoldsForRandomAndWorstVectors) {
  std::mt19937 generator(3);
  std::normal_distribution<double> normal;
  for (int bits : {2, 3, 4, 5}) {
    std::vector<LevelSet> sets = {UniformLevels(bits)};
    for (float p : {.3f, .5f, .7f, .9f}) sets.push_back(*ExponentialLevels(bits, p));
    for (const LevelSet& levels : sets) {
      for (double q : {1.0, 1.5, 2.0, 3.0, kUnbounded}) {
        for (size_t d : {1u, 2u, 17u, 500u, 8192u}) {
          std::vector<double> v(d, 1.0);
          const double bound = VarianceBound(levels, static_cast<double>(d), q);
          EXPECT_LE(ExactVariance(levels, v, q), bound * (1 + 1e-9) + 1e-9);
          for (double& x : v) x = normal(generator);
          EXPECT_LE(ExactVariance(levels, v, q), bound * (1 + 1e-9) + 1e-9);
          for (double& x : v) x = levels.values[1] / 2;  // in the middle of the first interval
          v[0] = 1;
          EXPECT_LE(ExactVariance(levels, v, q), bound * (1 + 1e-9) + 1e-9);
        }
      }
    }
  }
  // The vector of equal coordinates attains l_1 sqrt(d) - 1.
  const LevelSet half = *ExponentialLevels(3, .5f);
  EXPECT_NEAR(ExactVariance(half, std::vector<double>(8192, 1.0), 2),
              .25 * std::sqrt(8192.0) - 1, 1e-9);
}

}  // namespace
}  // namespace elastiquant
