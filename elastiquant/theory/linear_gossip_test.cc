#include "elastiquant/theory/linear_gossip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <utility>
#include <vector>

namespace elastiquant::theory {
namespace {

// Workers with the same quadratic of one number.
LinearGossip Alike(Recursion recursion, std::vector<Mixing> mixings, double curvature) {
  const size_t workers = mixings[0].workers;
  return {
      .recursion = recursion,
      .mixings = std::move(mixings),
      .curvatures = std::vector<std::vector<double>>(workers, std::vector<double>{curvature})};
}

// The larger root of z^2 - p z + q, in magnitude.
double LargestRoot(double p, double q) {
  const std::complex<double> root = std::sqrt(std::complex<double>(p * p - 4 * q));
  return std::max(std::abs(p + root), std::abs(p - root)) / 2;
}

// docs/theory.md has these forms, by eigenvalues of a symmetric W.
TEST(LinearGossipTest, AlikeQuadraticsHaveTheFormsOfTheEigenvalues) {
  constexpr double kCurvature = .2, kKept = 1 - kCurvature;
  for (const size_t workers : {3, 4, 7, 8}) {
    const Mixing lazy = LazyMixing(RingMixing(workers));
    double plain = 0, d2 = 0, tracking = 0, replicas = 0, late = 0, noloco = 0;
    LinearGossip stepped = Alike(Recursion::kReplicas, {lazy}, kCurvature);
    stepped.step = .5;
    for (const double lambda : SymmetricEigenvalues(lazy)) {
      if (lambda > 1 - 1e-9) continue;
      const double mixed = 1 + stepped.step * (lambda - 1);
      plain = std::max(plain, std::abs(lambda - kCurvature));
      d2 = std::max(d2, LargestRoot(lambda * (1 + kKept), lambda * kKept));
      tracking =
          std::max(tracking, LargestRoot(lambda * (1 + kKept), lambda * (lambda - kCurvature)));
      replicas = std::max(replicas, std::abs(mixed * kKept));
      late = std::max(late, LargestRoot(kKept, (1 - mixed) * kKept));
      // x + m with m <- .3 m + .7 (lambda kept - 1) x.
      const double moved = .7 * (lambda * kKept - 1);
      noloco = std::max(noloco, LargestRoot(1 + moved + .3, .3));
    }
    const auto rate = [&](Recursion recursion) {
      return RateOf(Alike(recursion, {lazy}, kCurvature), Among::kDifferences);
    };
    EXPECT_NEAR(rate(Recursion::kPlain), plain, 1e-9) << workers;
    EXPECT_NEAR(rate(Recursion::kD2), d2, 1e-7) << workers;
    EXPECT_NEAR(rate(Recursion::kTracking), tracking, 1e-7) << workers;
    EXPECT_NEAR(RateOf(stepped, Among::kDifferences), replicas, 1e-9) << workers;
    stepped.recursion = Recursion::kLate;
    EXPECT_NEAR(RateOf(stepped, Among::kDifferences), late, 1e-7) << workers;
    EXPECT_NEAR(rate(Recursion::kNoLoCo), noloco, 1e-7) << workers;
  }
}

TEST(LinearGossipTest, AllTogetherAreAsSlowAsTheirMean) {
  // The mean is multiplied by 1 - curvature, which is more than the ring's differences are.
  for (const Recursion recursion : {Recursion::kPlain, Recursion::kD2, Recursion::kTracking,
                                    Recursion::kReplicas, Recursion::kLate}) {
    const LinearGossip gossip = Alike(recursion, {LazyMixing(RingMixing(4))}, .05);
    EXPECT_NEAR(RateOf(gossip, Among::kAll), .95, 1e-6) << static_cast<int>(recursion);
    EXPECT_LT(RateOf(gossip, Among::kDifferences), .951);
  }
}

TEST(LinearGossipTest, PairsThatTakeTurnsAverageExactly) {
  const LinearGossip one_peer =
      Alike(Recursion::kReplicas,
            {OnePeerMixing(8, 0), OnePeerMixing(8, 1), OnePeerMixing(8, 2)}, .1);
  EXPECT_LT(RateOf(one_peer, Among::kDifferences), 1e-3);  // a root of 0 is found that well
  EXPECT_NEAR(RateOf(one_peer, Among::kAll), .9, 1e-9);
}

TEST(LinearGossipTest, EndsWhereEachRoundLeavesItAsItIs) {
  // Two workers that want to be at 1 and -1, and average half of the way.
  const Mixing half = {.workers = 2, .weights = {.75, .25, .25, .75}};
  const double curvature = .1, lambda = .5;
  const std::vector<double> constants = {curvature, -curvature};
  const auto end = [&](Recursion recursion) {
    return EndOf(Alike(recursion, {half}, curvature), constants, 1);
  };
  const double plain = curvature / (1 - lambda + curvature);
  const double replicas = lambda * curvature / (1 - lambda * (1 - curvature));
  for (const auto& [recursion, left] :
       {std::pair(Recursion::kPlain, plain), std::pair(Recursion::kReplicas, replicas),
        std::pair(Recursion::kLate, replicas), std::pair(Recursion::kD2, 0.0),
        std::pair(Recursion::kTracking, 0.0)}) {
    const std::vector<double> x = end(recursion);
    EXPECT_NEAR(x[0], left, 1e-9) << static_cast<int>(recursion);
    EXPECT_NEAR(x[1], -left, 1e-9) << static_cast<int>(recursion);
  }
}

TEST(LinearGossipTest, WorkersOfUnequalCurvatureEndAtTheOptimumUnderDSquaredAndTracking) {
  LinearGossip gossip{.recursion = Recursion::kD2,
                      .mixings = {LazyMixing(RingMixing(3))},
                      .elements = 2,
                      .curvatures = {{.1, .02, .02, .3}, {.2, 0, 0, .1}, {.3, -.05, -.05, .2}}};
  // The optimum is where the constants of all outweigh their curvatures: (.6, .6) x = sums.
  const std::vector<double> constants = {.1, -.2, .3, .1, .05, .4};
  const double a = .6, b = -.03, c = .6, first = .45, second = .3;
  const double x = (c * first - b * second) / (a * c - b * b);
  const double y = (a * second - b * first) / (a * c - b * b);
  for (const Recursion recursion : {Recursion::kD2, Recursion::kTracking}) {
    gossip.recursion = recursion;
    EXPECT_LT(RateOf(gossip, Among::kAll), .95);
    const std::vector<double> end = EndOf(gossip, constants, 1);
    for (size_t w = 0; w < 3; ++w) {
      EXPECT_NEAR(end[2 * w], x, 1e-8) << w;
      EXPECT_NEAR(end[2 * w + 1], y, 1e-8) << w;
    }
  }
}

TEST(LinearGossipTest, PushSumMakesUnbalancedWorkersComparable) {
  // Worker 0 keeps a third and gives the rest away; columns add up to 1, rows do not.
  const Mixing unbalanced = {.workers = 2, .weights = {1.0 / 3, .5, 2.0 / 3, .5}};
  LinearGossip gossip = Alike(Recursion::kReplicas, {unbalanced}, .01);
  const std::vector<double> constants = {.02, .02};  // both want to be at 2
  const std::vector<double> end = EndOf(gossip, constants, 1);
  EXPECT_NEAR(end[0], 2, .01);
  EXPECT_NEAR(end[1], 2, .01);
  EXPECT_NEAR(RateOf(gossip, Among::kAll), .99, .005);
  gossip.curvatures = {{.9}, {.9}};  // weights are quick then, and push-sum's sums are not
  EXPECT_NEAR(RateOf(gossip, Among::kAll), 1.0 / 6, 1e-9);
}

}  // namespace
}  // namespace elastiquant::theory
