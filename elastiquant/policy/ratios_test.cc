#include "elastiquant/policy/ratios.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "elastiquant/policy/policy_testing.h"

namespace elastiquant::policy {
namespace {

using ::testing::HasSubstr;

// Nine volumes whose logarithms are evenly spaced from `skew` down to 1, the last one twice.
std::vector<double> Skewed(double skew) {
  std::vector<double> volumes;
  for (int i = 0; i < 9; ++i) volumes.push_back(std::pow(skew, 1 - i / 8.0));
  volumes.push_back(volumes.back());
  return volumes;
}

void ExpectNear(const std::vector<double>& values, const std::vector<double>& expected,
                double relative) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], relative * expected[i]) << "worker " << i;
  }
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) /
         static_cast<double>(values.size());
}

// A random but repeatable set of up to 64 volumes of very different sizes.
std::vector<double> RandomVolumes(uint64_t draw) {
  Draws draws(17, draw);
  const size_t n = 1 + draws.Below(64);
  const double spread = draws.Uniform(0, 12);
  std::vector<double> volumes;
  for (size_t i = 0; i < n; ++i) {
    const bool repeat = i > 0 && draws.Uniform() < .2;
    volumes.push_back(repeat ? volumes.back() : std::exp2(draws.Uniform(0, spread)));
  }
  return volumes;
}

TEST(RatiosTest, PublishedRuleGivesTheRatiosOfTheAuthorsCode) {
  const struct {
    double skew;
    std::vector<double> ratios;
  } cases[] = {
      {10, {.21023, .17352, .14323, .11822, .09758, .04529, .06648, .05487, .04529, .04529}},
      {100, {.32989, .22475, .15312, .10432, .07107, .04842, .01531, .02248, .01531, .01531}},
      {1000, {.43970, .24726, .13905, .07819, .04397, .02473, .01390, .00440, .00440, .00440}}};
  for (const auto& c : cases) {
    const auto ratios = WorkerRatios(RatioRule::kPublished, .1, Skewed(c.skew));
    ASSERT_TRUE(ratios.ok());
    ExpectNear(*ratios, c.ratios, 1.2e-3);
  }
  const double three[] = {.7, .25, .05};
  ExpectNear(*WorkerRatios(RatioRule::kPublished, .1, three), {.14949, .07525, .07525}, 1e-4);
}

TEST(RatiosTest, ThresholdsAreThoseOfTheAuthorsCode) {
  const struct {
    double skew;
    std::vector<double> thresholds;
  } cases[] = {
      {10, {.4924, .5966, .7228, .8757, 1.0609, 1.2854, 1.5572, 1.8866, 2.2857, 2.2857}},
      {100, {.3085, .4528, .6646, .9755, 1.4319, 2.1017, 3.0849, 4.5280, 6.6461, 6.6461}},
      {1000, {.2282, .4058, .7216, 1.2833, 2.2820, 4.0581, 7.2164, 12.833, 22.820, 22.820}}};
  for (const auto& c : cases) {
    ExpectNear(*RelativeThresholds(Skewed(c.skew)), c.thresholds, 2e-4);
  }
  const double three[] = {.7, .25, .05};
  ExpectNear(*RelativeThresholds(three), {.5585, 1.1095, 3.2443}, 1e-4);
}

TEST(RatiosTest, MonotoneRuleIsAPowerOfTheVolume) {
  const double three[] = {.7, .25, .05};
  ExpectNear(*WorkerRatios(RatioRule::kMonotone, .1, three), {.17905, .09013, .03082}, 1e-3);
  ExpectNear(*WorkerRatios(RatioRule::kMonotone, .1, three, 1), {.21, .075, .015}, 1e-9);
  ExpectNear(*WorkerRatios(RatioRule::kMonotone, .1, three, 0), {.1, .1, .1}, 1e-12);
}

TEST(RatiosTest, WhatALargeWorkerCannotUseGoesToTheOthers) {
  const double volumes[] = {8, 1, 1};
  // 8 would get 1.2 of a budget of 1.5, and can use 1.
  ExpectNear(*WorkerRatios(RatioRule::kMonotone, .5, volumes, 1), {1, .25, .25}, 1e-12);
  const double two_full[] = {900, 90, 9, 1};
  ExpectNear(*WorkerRatios(RatioRule::kMonotone, .6, two_full, 1), {1, 1, .36, .04}, 1e-12);
}

TEST(RatiosTest, PublishedRuleCutsAndSendsLess) {
  const auto ratios = WorkerRatios(RatioRule::kPublished, .9, Skewed(100));
  ASSERT_TRUE(ratios.ok());
  EXPECT_EQ(std::ranges::max(*ratios), 1);
  EXPECT_LT(Mean(*ratios), .9);
}

TEST(RatiosTest, EqualVolumesGiveEqualRatios) {
  for (const size_t n : {1, 2, 3, 10, 32}) {
    const std::vector<double> volumes(n, 123), tenths(n, .1), ones(n, 1);
    for (const RatioRule rule :
         {RatioRule::kUniform, RatioRule::kPublished, RatioRule::kMonotone}) {
      ExpectNear(*WorkerRatios(rule, .1, volumes), tenths, 1e-12);
      ExpectNear(*WorkerRatios(rule, 1, volumes), ones, 1e-12);
    }
    ExpectNear(*RelativeThresholds(volumes), ones, 1e-12);
  }
}

TEST(RatiosTest, BudgetIsKeptForAnyVolumes) {
  for (uint64_t draw = 0; draw < 400; ++draw) {
    const std::vector<double> volumes = RandomVolumes(draw);
    Draws draws(18, draw);
    const double mean = draws.Uniform(.001, .999), exponent = draws.Uniform(0, 2);
    const auto ratios = WorkerRatios(RatioRule::kMonotone, mean, volumes, exponent);
    ASSERT_TRUE(ratios.ok());
    EXPECT_NEAR(Mean(*ratios), mean, 1e-12);
    const auto published = WorkerRatios(RatioRule::kPublished, mean, volumes);
    ASSERT_TRUE(published.ok());
    const bool cut = std::ranges::max(*published) == 1;
    EXPECT_TRUE(cut ? Mean(*published) <= mean + 1e-12
                    : std::abs(Mean(*published) - mean) < 1e-12);
    for (const auto* all : {&*ratios, &*published}) {
      EXPECT_GT(std::ranges::min(*all), 0);
      EXPECT_LE(std::ranges::max(*all), 1);
    }
  }
}

TEST(RatiosTest, MonotoneRuleIsMonotoneAndPublishedStarvesOneWorkerAtMost) {
  for (uint64_t draw = 0; draw < 200; ++draw) {
    std::vector<double> volumes = RandomVolumes(draw);
    std::ranges::sort(volumes, std::greater<>());
    const auto monotone = WorkerRatios(RatioRule::kMonotone, .2, volumes);
    EXPECT_TRUE(std::ranges::is_sorted(*monotone, std::greater<>()));
    const auto published = WorkerRatios(RatioRule::kPublished, .01, volumes);
    int rises = 0;
    for (size_t i = 1; i < published->size(); ++i) {
      rises += (*published)[i] > (*published)[i - 1];
    }
    EXPECT_LE(rises, 1);
  }
}

TEST(RatiosTest, OrderOfWorkersDoesNotMatter) {
  std::vector<double> volumes = Skewed(100);
  const auto sorted = WorkerRatios(RatioRule::kPublished, .1, volumes);
  std::ranges::reverse(volumes);
  auto reversed = WorkerRatios(RatioRule::kPublished, .1, volumes);
  ASSERT_TRUE(reversed.ok());
  std::ranges::reverse(*reversed);
  ExpectNear(*reversed, *sorted, 1e-12);
}

TEST(RatiosTest, OnlyProportionsCount) {
  std::vector<double> volumes = Skewed(1000);
  const auto ratios = WorkerRatios(RatioRule::kMonotone, .1, volumes);
  const auto thresholds = RelativeThresholds(volumes);
  for (double& v : volumes) v *= 1e250;
  ExpectNear(*WorkerRatios(RatioRule::kMonotone, .1, volumes), *ratios, 1e-9);
  ExpectNear(*RelativeThresholds(volumes), *thresholds, 1e-9);
}

TEST(RatiosTest, WrongValuesSayWhatIsRight) {
  const double good[] = {2, 1}, zero[] = {2, 0}, nan[] = {NAN, 1};
  const auto words = [](const auto& result) {
    return result.ok() ? "" : result.status().message();
  };
  const RatioRule rule = RatioRule::kMonotone;
  EXPECT_THAT(words(WorkerRatios(rule, .1, {})), HasSubstr("one for each worker"));
  EXPECT_THAT(words(WorkerRatios(rule, .1, zero)), HasSubstr("0 of worker 1"));
  EXPECT_THAT(words(WorkerRatios(rule, .1, nan)), HasSubstr("worker 0"));
  EXPECT_THAT(words(WorkerRatios(rule, 0, good)), HasSubstr("at most 1"));
  EXPECT_THAT(words(WorkerRatios(rule, 1.5, good)), HasSubstr("ratio 1.5"));
  EXPECT_THAT(words(WorkerRatios(rule, .1, good, -1)), HasSubstr("exponent"));
  EXPECT_THAT(words(WorkerRatios(RatioRule::kPublished, .1, good, .5)),
              HasSubstr("rule monotone"));
  EXPECT_THAT(words(RelativeThresholds(zero)), HasSubstr("above 0"));
  EXPECT_THAT(words(ParseRatioRule("greedy")), HasSubstr("uniform, published, monotone"));
}

}  // namespace
}  // namespace elastiquant::policy
