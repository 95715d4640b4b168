#include "elastiquant/theory/pair_gossip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <utility>
#include <vector>

namespace elastiquant::theory {
namespace {

// A ring of even length, whose odd workers ask.
PairGossip Ring(size_t workers, const std::vector<double>& curvatures) {
  PairGossip gossip{.asked = std::vector<std::vector<size_t>>(workers)};
  for (size_t w = 1; w < workers; w += 2) {
    gossip.asked[w] = {w - 1, (w + 1) % workers};
    if (workers == 2) gossip.asked[w] = {0};
  }
  for (size_t w = 0; w < workers; ++w) {
    gossip.curvatures.push_back({curvatures[w % curvatures.size()]});
  }
  return gossip;
}

// With two workers nothing is random: x0 <- x0 - a x0, both to the mean, x1 <- x1 - b x1'.
TEST(PairGossipTest, TwoWorkersHaveTheRateOfTheirMatrix) {
  const double a = .1, b = .3;
  const double m00 = (1 - a) / 2, m01 = .5, m10 = (1 - a) / 2, m11 = .5 - b;
  const double trace = m00 + m11, determinant = m00 * m11 - m01 * m10;
  const double root = (trace + std::sqrt(trace * trace - 4 * determinant)) / 2;
  EXPECT_NEAR(RateOf(Ring(2, {a, b})), root, 1e-9);
}

TEST(PairGossipTest, WorkersThatOnlyMoveTogetherKeepTheirMeansRate) {
  // Without gradients the mean stays, and distances from it do not count as dying out.
  EXPECT_NEAR(RateOf(Ring(8, {0.0})), 1, 1e-9);
  // With equal ones the mean is multiplied by 1 - a in each round, whatever is picked.
  EXPECT_GT(RateOf(Ring(8, {.05})), .95 - 1e-9);
  EXPECT_LT(RateOf(Ring(8, {.05})), .96);
}

// The recursion itself, with random choices.
class Simulation {
 public:
  Simulation(PairGossip gossip, std::vector<double> constants, uint64_t seed)
      : gossip_(std::move(gossip)),
        constants_(std::move(constants)),
        random_(seed),
        x_(gossip_.workers()) {}

  std::vector<double>& x() { return x_; }

  void Round() {
    const size_t workers = x_.size();
    std::vector<double> d(workers);
    for (size_t w = 0; w < workers; ++w)
      d[w] = constants_[w] - gossip_.curvatures[w][0] * x_[w];
    for (size_t w = 0; w < workers; ++w) {
      if (gossip_.asked[w].empty()) x_[w] += d[w];
    }
    for (size_t w = 0; w < workers; ++w) {
      const std::vector<size_t>& asked = gossip_.asked[w];
      if (asked.empty()) continue;
      const size_t other = asked[random_() % asked.size()];
      const double half = gossip_.step / 2 * (x_[other] - x_[w]);
      x_[w] += half;
      x_[other] -= half;
      x_[w] += d[w];
    }
  }

 private:
  PairGossip gossip_;
  std::vector<double> constants_;
  std::mt19937_64 random_;
  std::vector<double> x_;
};

TEST(PairGossipTest, SimulatedDistancesDieOutAtTheRate) {
  PairGossip gossip = Ring(6, {.3, .05});
  gossip.step = .8;
  double early = 0, late = 0;
  for (uint64_t trial = 0; trial < 4000; ++trial) {
    Simulation simulation(gossip, std::vector<double>(6), trial);
    simulation.x()[trial % 6] = 1;
    for (int round = 0; round < 30; ++round) {
      if (round == 10) {
        for (const double x : simulation.x()) early += x * x;
      }
      simulation.Round();
    }
    for (const double x : simulation.x()) late += x * x;
  }
  EXPECT_NEAR(std::pow(late / early, 1 / 40.0), RateOf(gossip), 2e-3);
}

TEST(PairGossipTest, SimulatedWeightsEndWithTheMeanProducts) {
  const PairGossip gossip = Ring(4, {.2, .1});
  const std::vector<double> constants = {.1, -.2, .3, .05};
  std::vector<double> products;
  for (const double a : constants) {
    for (const double b : constants) products.push_back(a * b);
  }
  const std::vector<double> expected = EndProductsOf(gossip, products);
  Simulation simulation(gossip, constants, 3);
  std::vector<double> seen(products.size());
  constexpr int kRounds = 400000;
  for (int round = -500; round < kRounds; ++round) {
    simulation.Round();
    for (size_t i = 0; round >= 0 && i < seen.size(); ++i) {
      seen[i] += simulation.x()[i / 4] * simulation.x()[i % 4] / kRounds;
    }
  }
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], expected[i], 5e-3) << i;
}

}  // namespace
}  // namespace elastiquant::theory
