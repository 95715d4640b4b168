#include "elastiquant/codec/elastic/adapt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"

namespace elastiquant {
namespace {

const std::vector<BucketStatistics> kBuckets{{4, .01, .1}, {1, -.2, .3}, {2, 0, .02}};

// The density of the magnitudes, by its definition.
double DensityAt(double r) {
  double sum = 0, total = 0;
  for (const auto& [weight, mean, deviation] : kBuckets) {
    const auto normal = [&, m = mean, s = deviation](double x) {
      return std::exp(-(x - m) * (x - m) / (2 * s * s)) / (s * std::sqrt(2 * std::numbers::pi));
    };
    const auto below = [&, m = mean, s = deviation](double x) {
      return std::erfc((m - x) / (s * std::numbers::sqrt2)) / 2;
    };
    sum += weight * (normal(r) + normal(-r)) / (below(1) - below(-1));
    total += weight;
  }
  return sum / total;
}

Moments Integrated(double a, double b) {
  Moments sum;
  constexpr int kSteps = 20000;
  for (int k = 0; k < kSteps; ++k) {
    const double r = a + (b - a) * (k + .5) / kSteps, f = DensityAt(r) * (b - a) / kSteps;
    sum.mass += f;
    sum.first += r * f;
    sum.second += r * r * f;
  }
  return sum;
}

TEST(MagnitudeModel, IntegralsAreThoseOfTheDensity) {
  const MagnitudeModel model(kBuckets);
  for (const auto& [a, b] : {std::pair{0., 1.}, {0., .05}, {.05, .3}, {.5, .9}}) {
    const Moments m = model.Below(b) - model.Below(a), expected = Integrated(a, b);
    EXPECT_NEAR(m.mass, expected.mass, 1e-7);
    EXPECT_NEAR(m.first, expected.first, 1e-7);
    EXPECT_NEAR(m.second, expected.second, 1e-7);
  }
  EXPECT_NEAR(model.Below(1).mass, 1, 1e-12);
  EXPECT_NEAR(model.Below(model.Quantile(.3, 0, 1)).mass, .3, 1e-8);
}

TEST(MagnitudeModel, BucketsCountByTheirSquaredNorms) {
  const std::vector<float> v{3, 4, 0, 0, .6f, -.8f, 0, 0, 0, 0, 0, 0, 30, 40};
  const std::span<const float> gradients[] = {v};
  const auto all = GatherStatistics(gradients, {NormKind::kL2, 0}, 4, 100);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_NEAR(all[0].weight, 25, 1e-5);
  EXPECT_NEAR(all[0].mean, 7. / 20, 1e-6);
  EXPECT_NEAR(all[0].deviation, std::sqrt(.25 - .35 * .35), 1e-6);
  EXPECT_NEAR(all[1].weight, 1, 1e-6);
  EXPECT_NEAR(all[2].weight, 2500, 1e-2);
  const auto largest = GatherStatistics(gradients, {NormKind::kL2, 0}, 4, 2);
  ASSERT_EQ(largest.size(), 2u);
  EXPECT_NEAR(largest[0].weight, 25, 1e-5);
}

TEST(Alq, TheCoordinateStepIsTheBestLevel) {
  const MagnitudeModel model(kBuckets);
  for (const auto& [a, c] : {std::pair{0., 1.}, {0., .1}, {.05, .4}}) {
    const double level = BestLevel(model, a, c);
    const auto cost = [&, a = a, c = c](double l) {
      return LevelObjective(model, std::vector<double>{a, l, c});
    };
    for (int k = 1; k < 200; ++k) {
      EXPECT_LE(cost(level), cost(a + (c - a) * k / 200) + 1e-12) << a << " " << c;
    }
  }
}

TEST(Alq, FittedLevelsAreStationaryAndBetterThanAnyStart) {
  const MagnitudeModel model(kBuckets);
  for (size_t inner : {1, 2, 6, 14}) {
    const std::vector<double> levels = FitLevels(model, inner);
    ASSERT_EQ(levels.size(), inner + 2);
    EXPECT_TRUE(std::ranges::is_sorted(levels));
    EXPECT_EQ(levels.front(), 0);
    EXPECT_EQ(levels.back(), 1);
    std::vector<double> uniform(inner + 2), powers(inner + 2);
    for (size_t j = 0; j < levels.size(); ++j) {
      uniform[j] = static_cast<double>(j) / static_cast<double>(inner + 1);
      powers[j] = j == 0 ? 0 : std::pow(.5, static_cast<double>(inner + 1 - j));
    }
    const double objective = LevelObjective(model, levels);
    EXPECT_LT(objective, LevelObjective(model, uniform));
    EXPECT_LT(objective, LevelObjective(model, powers));
    for (size_t j = 1; j <= inner; ++j) {
      std::vector<double> moved = levels;
      moved[j] = BestLevel(model, levels[j - 1], levels[j + 1]);
      EXPECT_GT(LevelObjective(model, moved), objective * (1 - 1e-5)) << inner << " " << j;
    }
  }
}

TEST(Amq, TheDerivativeIsThatOfTheObjective) {
  const MagnitudeModel model(kBuckets);
  for (size_t last : {1, 3, 7}) {
    for (double p : {.2, .5, .7, .9}) {
      const double h = 1e-5;
      const double difference =
          (RatioObjective(model, last, p + h) - RatioObjective(model, last, p - h)) / (2 * h);
      EXPECT_NEAR(RatioDerivative(model, last, p), difference, 1e-6) << last << " " << p;
    }
  }
}

TEST(Amq, TheFittedRatioIsTheBest) {
  const MagnitudeModel model(kBuckets);
  for (size_t last : {1, 3, 7}) {
    const double p = FitRatio(model, last, .5);
    for (int k = 3; k < 98; ++k) {
      EXPECT_LE(RatioObjective(model, last, p), RatioObjective(model, last, k / 100.) * 1.0001)
          << last << " " << k;
    }
  }
}

std::string Adapted(const std::string& spec, const std::vector<float>& v) {
  const std::span<const float> gradients[] = {v};
  const auto adapted = AdaptSpec(*Make(spec), gradients);
  EXPECT_TRUE(adapted.ok()) << adapted.status().ToString();
  return adapted.ok() ? *adapted : spec;
}

TEST(AdaptSpec, LowersTheError) {
  const std::vector<float> v = Gaussian(8192 * 4);
  for (const std::string spec : {"alq", "alq:bits=4", "amq", "amq:bits=4"}) {
    const std::string adapted = Adapted(spec, v);
    EXPECT_LT(MeanNmse(adapted, v, 5), .6 * MeanNmse(spec, v, 5)) << adapted;
    // What was adapted already changes no more.
    EXPECT_NEAR(MeanNmse(Adapted(adapted, v), v, 5) / MeanNmse(adapted, v, 5), 1, .02)
        << adapted;
  }
}

// No levels do much better: those of a fine search over all pairs.
TEST(AdaptSpec, FindsTheLevelsOfLeastError) {
  const std::vector<float> v = Gaussian(8192 * 16);
  double least = 1e9;
  for (int a = 6; a < 16; ++a) {
    for (int b = a + 6; b < 30; ++b) {
      least = std::min(least, MeanNmse("alq:levels=" + std::to_string(a * .002) + "/" +
                                           std::to_string(b * .002) + "/1",
                                       v, 5));
    }
  }
  EXPECT_LT(MeanNmse(Adapted("alq", v), v, 5), least * 1.03);
}

TEST(AdaptSpec, KeepsKeysAndModifiers) {
  const std::vector<float> v = Gaussian(2000);
  const std::string adapted = Adapted("alq:bits=2,norm=linf,bucket=100|rans|ef", v);
  EXPECT_EQ(adapted.find("alq:bits=2,levels=1,norm=linf,bucket=100|rans|ef"), 0u) << adapted;
  EXPECT_TRUE(IsAdaptive(*Make(adapted)));
  EXPECT_EQ(Adapted("amq:bits=4|ef", std::vector<float>(50)),
            "amq:bits=4,p=0.5,norm=l2,bucket=8192|ef");
  const std::string finest = Adapted("amq:bits=8", v);  // which starts from p=auto
  EXPECT_EQ(finest.find("amq:bits=8,p=0.9"), 0u) << finest;
}

TEST(AdaptSpec, RefusesCodecsWithoutLevelsToAdapt) {
  const auto adapted = AdaptSpec(*Make("elastic"), {});
  EXPECT_EQ(adapted.status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(IsAdaptive(*Make("zeroless")));
}

TEST(AdaptSpec, StepsAreThoseOfThePaper) {
  EXPECT_FALSE(IsAdaptationStep(0));
  EXPECT_TRUE(IsAdaptationStep(100));
  EXPECT_TRUE(IsAdaptationStep(2000));
  EXPECT_TRUE(IsAdaptationStep(30000));
  EXPECT_FALSE(IsAdaptationStep(5000));
}

}  // namespace
}  // namespace elastiquant
