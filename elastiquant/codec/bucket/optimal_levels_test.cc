#include "elastiquant/codec/bucket/optimal_levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace elastiquant {
namespace {

// What stochastic rounding to `levels` costs.
double Cost(const std::vector<float>& values, const std::vector<float>& levels) {
  double cost = 0;
  for (const float v : values) {
    size_t k = 0;
    while (k + 2 < levels.size() && v >= levels[k + 1]) ++k;
    cost += (static_cast<double>(levels[k + 1]) - v) * (static_cast<double>(v) - levels[k]);
  }
  return cost;
}

std::vector<float> Orq(const std::vector<float>& sorted, size_t count) {
  std::vector<double> sums(sorted.size() + 1);
  std::vector<float> levels(count);
  OrqLevels(sorted, sums, levels);
  return levels;
}
std::vector<float> Quiver(const std::vector<float>& sorted, size_t count) {
  std::vector<double> scratch(QuiverScratchBytes(sorted.size(), count) / 8 + 1);
  std::vector<float> levels(count);
  QuiverLevels(sorted, {reinterpret_cast<uint8_t*>(scratch.data()), 8 * scratch.size()},
               levels);
  return levels;
}
std::vector<float> Grid(const std::vector<float>& values, size_t count, size_t bins) {
  std::vector<double> scratch(QuiverScratchBytes(bins + 1, count) / 8 + 1);
  std::vector<float> levels(count);
  QuiverGridLevels(values, bins,
                   {reinterpret_cast<uint8_t*>(scratch.data()), 8 * scratch.size()}, levels);
  return levels;
}

std::vector<float> Sorted(size_t n, unsigned seed, int kind) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) {
    x = normal(generator);
    if (kind == 1) x = std::exp(2 * x);              // one-sided, heavy
    if (kind == 2) x = std::round(x);                // many equal
    if (kind == 3) x = x * x * x / std::abs(x) * x;  // peaked
    x += 0.0f;
  }
  std::ranges::sort(v);
  return v;
}

// The least cost of all sets of `count` levels taken from the values, both ends among them.
double BruteForce(const std::vector<float>& sorted, std::vector<float> levels, size_t from,
                  size_t count) {
  if (levels.size() + 1 == count) {
    levels.push_back(sorted.back());
    return Cost(sorted, levels);
  }
  double least = std::numeric_limits<double>::infinity();
  levels.push_back(0);
  for (size_t k = from; k < sorted.size(); ++k) {
    levels.back() = sorted[k];
    least = std::min(least, BruteForce(sorted, levels, k, count));
  }
  return least;
}

TEST(OrqLevels, AreThoseOfTheExample) {
  const std::vector<float> v{-1, -.5f, -.1f, 0, .2f, .4f, 1};
  EXPECT_EQ(Orq(v, 3), (std::vector<float>{-1, 0, 1}));
  EXPECT_EQ(Orq(v, 5), (std::vector<float>{-1, -.5f, 0, .4f, 1}));
}

// The condition of an optimum: each inner level is the best between its neighbours.
TEST(OrqLevels, TheMiddleIsTheBestOfAllValues) {
  for (int kind = 0; kind < 4; ++kind) {
    for (unsigned seed = 1; seed < 20; ++seed) {
      const std::vector<float> v = Sorted(40, seed, kind);
      const double cost = Cost(v, Orq(v, 3));
      EXPECT_LE(cost, BruteForce(v, {v.front()}, 0, 3) * (1 + 1e-9)) << kind << " " << seed;
    }
  }
}

TEST(OrqLevels, TakeBucketsOfAnySize) {
  EXPECT_EQ(Orq({3}, 9), std::vector<float>(9, 3));
  EXPECT_EQ(Orq({-1, 2}, 5).front(), -1);
  EXPECT_EQ(Orq({-1, 2}, 5).back(), 2);
  EXPECT_EQ(Orq({4, 4, 4}, 3), std::vector<float>(3, 4));
}

TEST(QuiverLevels, AreTheOptimum) {
  for (int kind = 0; kind < 4; ++kind) {
    for (size_t count : {2, 3, 4, 5}) {
      for (unsigned seed = 1; seed < 6; ++seed) {
        const std::vector<float> v = Sorted(14, seed, kind);
        const std::vector<float> levels = Quiver(v, count);
        EXPECT_TRUE(std::ranges::is_sorted(levels));
        EXPECT_NEAR(Cost(v, levels), BruteForce(v, {v.front()}, 0, count),
                    1e-6 * Cost(v, Quiver(v, 2)))
            << "kind " << kind << ", " << count << " levels, seed " << seed;
      }
    }
  }
}

TEST(QuiverLevels, AreNeverWorseThanOrqs) {
  for (int kind = 0; kind < 4; ++kind) {
    const std::vector<float> v = Sorted(1500, 7, kind);
    for (size_t count : {3, 5, 9}) {
      EXPECT_LE(Cost(v, Quiver(v, count)), Cost(v, Orq(v, count)) * (1 + 1e-9)) << kind;
    }
    EXPECT_NEAR(Cost(v, Quiver(v, 3)) / (Cost(v, Orq(v, 3)) + 1e-30), 1, 1e-6) << kind;
  }
}

TEST(QuiverLevels, TakeBucketsOfAnySize) {
  EXPECT_EQ(Quiver({3}, 4), std::vector<float>(4, 3));
  EXPECT_EQ(Cost({-1, 2}, Quiver({-1, 2}, 16)), 0);
  EXPECT_EQ(Quiver({4, 4, 4}, 3), std::vector<float>(3, 4));
}

// Opt_s + d (max - min)^2 / (4 m^2) with 2 s - 2 levels (Ben-Basat et al., 2024); with as many
// levels it is close to the optimum too.
TEST(QuiverGridLevels, AreNearlyTheOptimum) {
  for (int kind = 0; kind < 4; ++kind) {
    const std::vector<float> v = Sorted(3000, 5, kind);
    const double range = static_cast<double>(v.back()) - v.front();
    for (size_t count : {4, 8, 16}) {
      const double optimum = Cost(v, Quiver(v, count));
      for (size_t bins : {50, 400}) {
        const double m = static_cast<double>(bins);
        EXPECT_LE(Cost(v, Grid(v, 2 * count - 2, bins)),
                  optimum + 3000 * range * range / (4 * m * m) * (1 + 1e-6));
      }
      if (kind == 0) {
        EXPECT_LE(Cost(v, Grid(v, count, 400)), 1.01 * optimum);
      }
    }
  }
}

// Among all sets of places on the grid, by the true cost.
TEST(QuiverGridLevels, AreTheBestOnTheGrid) {
  const std::vector<float> v = Sorted(200, 3, 0);
  constexpr size_t kBins = 12;
  std::vector<float> grid;
  for (size_t i = 0; i <= kBins; ++i) {
    grid.push_back(v.front() + (v.back() - v.front()) * static_cast<float>(i) / kBins);
  }
  grid.back() = v.back();
  double least = std::numeric_limits<double>::infinity();
  for (size_t a = 0; a <= kBins; ++a) {
    for (size_t b = a; b <= kBins; ++b) {
      least = std::min(least, Cost(v, {grid[0], grid[a], grid[b], grid[kBins]}));
    }
  }
  EXPECT_NEAR(Cost(v, Grid(v, 4, kBins)) / least, 1, 1e-5);
}

TEST(QuiverGridLevels, TakeValuesThatAreAllTheSame) {
  EXPECT_EQ(Grid({-2, -2}, 4, 10), std::vector<float>(4, -2));
}

}  // namespace
}  // namespace elastiquant
