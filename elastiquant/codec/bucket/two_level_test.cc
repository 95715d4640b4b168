#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"

namespace elastiquant {
namespace {

void ExpectNear(const std::vector<float>& q, const std::vector<double>& expected) {
  ASSERT_EQ(q.size(), expected.size());
  for (size_t i = 0; i < q.size(); ++i) EXPECT_NEAR(q[i], expected[i], 1e-6) << i;
}

TEST(OneBit, LevelsAreTheMeansOfBothSigns) {
  ExpectNear(RoundTrip("onebit", {1, -2, 3, -10, 0}), {4. / 3, -6, 4. / 3, -6, 4. / 3});
  ExpectNear(RoundTrip("onebit:bucket=2", {1, 3, -2, -4, 5}), {2, 2, -3, -3, 5});
}

TEST(BinGradB, LevelsAreTheMeansOnEitherSideOfTheMean) {
  const double low = -.35, high = .7 / 3;
  ExpectNear(RoundTrip("bingrad-b", {.2f, -.1f, .4f, -.6f, .1f}), {high, low, high, low, high});
  ExpectNear(RoundTrip("bingrad-b", {5, 6, 6, 5}), {5, 6, 6, 5});
  ExpectNear(RoundTrip("bingrad-b", {-.7f, -.7f, -.7f}), {-.7, -.7, -.7});
}

TEST(BinGradB, LloydsRoundsNeverAddError) {
  std::vector<float> v = Gaussian(2000);
  for (float& x : v) x = std::exp(x);  // skewed, so that the mean is not the best threshold
  double before = Nmse(v, RoundTrip("bingrad-b:lloyd=0", v));
  for (int rounds : {1, 2, 5, 20}) {
    const double now = Nmse(v, RoundTrip("bingrad-b:lloyd=" + std::to_string(rounds), v));
    EXPECT_LE(now, before) << rounds;
    before = now;
  }
  EXPECT_LT(before, .9 * Nmse(v, RoundTrip("bingrad-b", v)));
}

// The only b there is on either side of which the condition changes its sign.
TEST(BinGradPb, LevelsMeetTheOptimalCondition) {
  for (const std::vector<float>& v :
       {Gaussian(1000), std::vector<float>{1, 1, 1, -1}, std::vector<float>{0, 0, 5, 0},
        std::vector<float>{3, -4, 0, 12}, std::vector<float>{1e-42f, -2e-42f}}) {
    float b = 0;
    for (const float q : RoundTrip("bingrad-pb", v)) b = std::max(b, std::abs(q));
    const auto mean_above = [&](double least) {
      double sum = 0;
      for (const float x : v)
        sum += std::abs(x) >= least ? std::abs(static_cast<double>(x)) : 0;
      return sum / static_cast<double>(v.size());
    };
    EXPECT_GE(mean_above(b * (1 - 1e-6)), b * (1 - 1e-6)) << v.size();
    EXPECT_LE(mean_above(b * (1 + 2e-4) + 1e-45), b * (1 + 2e-4) + 2e-45) << v.size();
  }
}

TEST(BinGradPb, SmallerValuesAreUnbiasedLargerOnesAreCut) {
  const std::vector<float> v{.5f, -.25f, 0, 10, -10, .1f};
  const double b = 20.0 / 6;
  std::vector<double> mean(v.size());
  constexpr int kDraws = 20000;
  for (uint64_t t = 0; t < kDraws; ++t) {
    const std::vector<float> q = RoundTrip("bingrad-pb", v, DeriveKey(1, t, 0, 0).value);
    for (size_t i = 0; i < v.size(); ++i) {
      ASSERT_NEAR(std::abs(q[i]), b, 1e-5);
      mean[i] += static_cast<double>(q[i]) / kDraws;
    }
  }
  for (size_t i : {0, 1, 2, 5}) EXPECT_NEAR(mean[i], static_cast<double>(v[i]), .1) << i;
  EXPECT_NEAR(mean[3], b, 1e-5);
  EXPECT_NEAR(mean[4], -b, 1e-5);
}

TEST(TwoLevels, GaussianErrorIsAsPredicted) {
  const std::vector<float> v = Gaussian(size_t{1} << 18);
  EXPECT_NEAR(Nmse(v, RoundTrip("onebit", v)), 1 - 2 / M_PI, .003);
  EXPECT_NEAR(Nmse(v, RoundTrip("bingrad-b", v)), 1 - 2 / M_PI, .003);
  EXPECT_NEAR(Nmse(v, RoundTrip("bingrad-pb", v)), .4539, .004);
  double b = 0;
  for (const float q : RoundTrip("bingrad-pb", v)) b += std::abs(static_cast<double>(q));
  EXPECT_NEAR(b / static_cast<double>(v.size()), .6471, .003);
}

// delta >= 1/d, 2/d and 1/d: one coordinate that is not zero; two that are each other's
// opposite.
TEST(TwoLevels, TheWorstVectorsStayWithinTheBounds) {
  constexpr size_t d = 64;
  std::vector<float> lonely(d), pair(d);
  lonely[5] = 3;
  pair[5] = 3;
  pair[50] = -3;
  for (const std::string spec : {"onebit", "bingrad-b", "bingrad-pb"}) {
    const auto bound = Make(spec)->NmseBound(d);
    ASSERT_TRUE(bound.has_value());
    EXPECT_NEAR(*bound, spec == "bingrad-b" ? 1 - 2.0 / d : 1 - 1.0 / d, 1e-5);
    EXPECT_LE(Nmse(lonely, RoundTrip(spec, lonely)), *bound);
    EXPECT_LE(Nmse(pair, RoundTrip(spec, pair)), *bound) << spec;
  }
}

TEST(TwoLevels, BitsAreOneAndTheLevels) {
  const std::vector<float> v = Gaussian(4096);
  EXPECT_EQ(Encode(*Make("onebit"), v, {1}).size(), 32u + 12 + 2 * 8 + 512);
  EXPECT_EQ(Encode(*Make("bingrad-pb"), v, {1}).size(), 32u + 12 + 2 * 4 + 512);
}

TEST(TwoLevels, ErrorsNameTheCodecAndWhatIsValid) {
  const auto message = [](const char* spec) { return MakeCodec(spec).status().message(); };
  EXPECT_EQ(message("bingrad-pb:bucket=0"),
            "codec 'bingrad-pb': bucket=0 is not valid; use 1 to 32768");
  EXPECT_EQ(message("bingrad-b:lloyd=-1"),
            "codec 'bingrad-b': lloyd=-1 is not valid; use 0 to 100");
}

}  // namespace
}  // namespace elastiquant
