#include "elastiquant/theory/decentralised_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "elastiquant/theory/error_feedback.h"
#include "elastiquant/theory/theory_test_util.h"
#include "elastiquant/theory/worst_case.h"

namespace elastiquant::theory {
namespace {

TEST(Mixing, FactorsAreThePublishedOnes) {
  for (const size_t n : {4u, 8u, 16u}) {
    const double want = (1 + 2 * std::cos(2 * std::numbers::pi / static_cast<double>(n))) / 3;
    EXPECT_NEAR(FactorsOf(RingMixing(n)).contraction, want, 1e-9);
  }
  EXPECT_NEAR(FactorsOf(RingMixing(4)).gap, .667, 1e-3);
  EXPECT_NEAR(FactorsOf(RingMixing(8)).gap, .195, 1e-3);
  EXPECT_NEAR(FactorsOf(RingMixing(16)).gap, .051, 1e-3);
  EXPECT_NEAR(FactorsOf(TorusMixing(4, 4)).gap, .4, 1e-9);
  EXPECT_NEAR(FactorsOf(ExponentialMixing(8)).gap, .5, 1e-9);
  EXPECT_NEAR(FactorsOf(ExponentialMixing(16)).gap, .4, 1e-9);
}

TEST(Mixing, RowsAndColumnsAddUpToOneEvenWhereNeighboursCoincide) {
  for (const Mixing& mixing :
       {RingMixing(3), TorusMixing(2, 5), TorusMixing(2, 2), ExponentialMixing(8),
        LazyMixing(RingMixing(6)), OnePeerMixing(8, 5)}) {
    for (size_t i = 0; i < mixing.workers; ++i) {
      double row = 0, column = 0;
      for (size_t j = 0; j < mixing.workers; ++j) {
        row += mixing(i, j);
        column += mixing(j, i);
      }
      EXPECT_NEAR(row, 1, 1e-12);
      EXPECT_NEAR(column, 1, 1e-12);
    }
  }
}

TEST(Mixing, OnePeerAveragesExactlyAfterLogSteps) {
  std::vector<double> x = {5, -1, 3, 8, 0, 2, 7, -4};
  for (size_t step = 0; step < 3; ++step) {
    const Mixing mixing = OnePeerMixing(8, step);
    std::vector<double> next(8, 0);
    for (size_t i = 0; i < 8; ++i) {
      for (size_t j = 0; j < 8; ++j) next[i] += mixing(i, j) * x[j];
    }
    x = next;
  }
  for (const double value : x) EXPECT_NEAR(value, 2.5, 1e-12);
}

TEST(Mixing, D2NeedsLazyEvenRings) {
  EXPECT_FALSE(AllowsD2(FactorsOf(RingMixing(8))));  // exactly at -1/3
  EXPECT_TRUE(AllowsD2(FactorsOf(RingMixing(7))));
  EXPECT_FALSE(AllowsD2(FactorsOf(TorusMixing(4, 4))));
  EXPECT_NEAR(FactorsOf(TorusMixing(4, 4)).least_eigenvalue, -.6, 1e-9);
  EXPECT_TRUE(AllowsD2(FactorsOf(LazyMixing(RingMixing(8)))));
  EXPECT_TRUE(AllowsD2(FactorsOf(LazyMixing(TorusMixing(4, 4)))));
}

// CHOCO-Gossip with the theorem's gamma on a ring of 8, through real codecs: top-k as it is, an
// elastic one divided by 1 + omega.
TEST(Choco, GossipContractsAsFastAsTheTheoremSays) {
  const MixingFactors factors = FactorsOf(RingMixing(8));
  const Mixing mixing = RingMixing(8);
  constexpr size_t kDimension = 48;
  for (const char* spec : {"topk:ratio=0.125", "elastic:bits=3,norm=l2,bucket=0,levels=exp"}) {
    const auto codec = Make(spec);
    const double bound = *codec->NmseBound(kDimension);
    const bool unbiased = codec->codec_class() == CodecClass::kUnbiased;
    const double delta = unbiased ? ContractionOfUnbiased(bound) : 1 - bound;
    const float scale = unbiased ? static_cast<float>(delta) : 1;
    const double gamma = ChocoStep(factors, delta);
    std::vector<std::vector<float>> x, public_x(8, std::vector<float>(kDimension, 0));
    for (unsigned i = 0; i < 8; ++i) x.push_back(Gaussian(kDimension, i + 1));
    const auto error = [&] {
      double sum = 0;
      for (size_t j = 0; j < kDimension; ++j) {
        double mean = 0;
        for (size_t i = 0; i < 8; ++i) mean += static_cast<double>(x[i][j]) / 8;
        for (size_t i = 0; i < 8; ++i) {
          sum += std::pow(x[i][j] - mean, 2) + std::pow(x[i][j] - public_x[i][j], 2);
        }
      }
      return sum;
    };
    const double start = error();
    constexpr int kRounds = 1500;
    for (uint64_t round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < 8; ++i) {
        std::vector<float> change = x[i];
        for (size_t j = 0; j < kDimension; ++j) change[j] -= public_x[i][j];
        const auto sent = Decode(Encode(*codec, change, DeriveKey(1, round, i, 0)), kDimension);
        for (size_t j = 0; j < kDimension; ++j) public_x[i][j] += scale * sent[j];
      }
      for (size_t i = 0; i < 8; ++i) {
        for (size_t j = 0; j < kDimension; ++j) {
          double pull = 0;
          for (size_t k = 0; k < 8; ++k)
            pull += mixing(i, k) * (public_x[k][j] - public_x[i][j]);
          x[i][j] += static_cast<float>(gamma * pull);
        }
      }
    }
    const double rate = std::pow(error() / start, 1.0 / kRounds);
    EXPECT_LE(rate, ChocoContraction(factors, delta)) << spec;
    EXPECT_LT(rate, 1) << spec;
    RecordProperty(
        unbiased ? "elastic_rounds_bound_over_measured" : "topk_rounds_bound_over_measured",
        std::to_string(std::log(rate) / std::log(ChocoContraction(factors, delta))));
  }
}

TEST(Dcd, ToleratesLessOnSparserGraphs) {
  EXPECT_LT(DcdLargestVariance(FactorsOf(RingMixing(16))),
            DcdLargestVariance(FactorsOf(RingMixing(8))));
  const MixingFactors ring = FactorsOf(RingMixing(8));
  // 1/4 (gap / |I - W|)^2, |I - W| = 4/3.
  EXPECT_NEAR(DcdLargestVariance(ring), ring.gap * ring.gap / (4 * 16.0 / 9), 1e-9);
}

TEST(ChocoBound, GrowsWithVarianceAndFallsWithSteps) {
  const SgdProblem problem;
  const MixingFactors ring = FactorsOf(RingMixing(8));
  EXPECT_LT(ChocoBound(problem, ring, 1, 8, 1e8), ChocoBound(problem, ring, .5, 8, 1e8));
  EXPECT_LT(ChocoBound(problem, ring, .5, 8, 1e9), ChocoBound(problem, ring, .5, 8, 1e8));
  // In the end only the first term counts, which is that of n workers without compression.
  const double steps = 1e26;
  EXPECT_NEAR(ChocoBound(problem, ring, .5, 8, steps) * std::sqrt(8 * steps), 8, .01);
}

}  // namespace
}  // namespace elastiquant::theory
