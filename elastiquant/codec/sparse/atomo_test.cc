#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "elastiquant/codec/codec.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

// What a coordinate is sent as, and how often.
struct DrawnValue {
  double rate = 0;
  float value = 0;
};
std::vector<DrawnValue> Outcomes(const std::string& spec, const std::vector<float>& values,
                                 int draws) {
  const auto codec = *MakeCodec(spec);
  Workspace work;
  std::vector<uint8_t> frame(codec->MaxFrameBytes(values.size()));
  std::vector<float> q(values.size());
  std::vector<DrawnValue> outcomes(values.size());
  for (int t = 0; t < draws; ++t) {
    const StreamKey key = DeriveKey(3, static_cast<uint64_t>(t), 0, 0);
    const auto size = codec->Encode(values, key, work, frame);
    EXPECT_TRUE(size.ok()) << size.status().ToString();
    EXPECT_TRUE(DecodeFrame(std::span(frame).first(*size), work, q).ok());
    for (size_t i = 0; i < q.size(); ++i) {
      if (q[i] == 0) continue;
      outcomes[i].rate += 1.0 / draws;
      outcomes[i].value = q[i];
    }
  }
  return outcomes;
}

TEST(Atomo, ProbabilitiesAreThoseOfWaterFilling) {
  const std::vector<float> values{5, -1, 0.5f, 0.25f};  // and s = 2
  const double expected[] = {1, 0.5714286, 0.2857143, 0.1428571};
  constexpr int kDraws = 20000;
  const std::vector<DrawnValue> outcomes = Outcomes("atomo:k=2,bits=32", values, kDraws);
  for (size_t i = 0; i < 4; ++i) {
    const double p = expected[i];
    EXPECT_NEAR(outcomes[i].rate, p, 5 * std::sqrt(p * (1 - p) / kDraws) + 1e-9);
    EXPECT_NEAR(outcomes[i].value, values[i] / p, 1e-5);
  }
}

// The least sum of v^2 (1/p - 1) with sum p = s, by bisection on the multiplier.
double LeastVariance(const std::vector<float>& values, double s) {
  double low = 0, high = 1e12;
  for (int i = 0; i < 200; ++i) {
    const double t = (low + high) / 2;
    double sum = 0;
    for (float v : values) sum += std::min(1.0, std::abs(v) / t);
    (sum > s ? low : high) = t;
  }
  double variance = 0;
  for (float v : values) {
    const double p = std::min(1.0, std::abs(v) / high);
    if (v != 0) variance += static_cast<double>(v) * v * (1 / p - 1);
  }
  return variance;
}

TEST(Atomo, TheVarianceIsTheLeastThereIs) {
  std::mt19937 generator(1);
  std::normal_distribution<double> normal;
  std::vector<float> values(2000);
  for (float& v : values) v = static_cast<float>(std::pow(normal(generator), 5));
  const auto codec = *MakeCodec("atomo:ratio=0.05,bits=32");
  Workspace work;
  std::vector<uint8_t> frame(codec->MaxFrameBytes(values.size()));
  std::vector<float> q(values.size());
  double error = 0;
  constexpr int kDraws = 3000;
  for (uint64_t t = 0; t < kDraws; ++t) {
    const auto size = codec->Encode(values, DeriveKey(4, t, 0, 0), work, frame);
    ASSERT_TRUE(size.ok());
    ASSERT_TRUE(DecodeFrame(std::span(frame).first(*size), work, q).ok());
    for (size_t i = 0; i < q.size(); ++i) error += std::pow(q[i] - values[i], 2);
  }
  const double least = LeastVariance(values, 100);
  EXPECT_NEAR(error / kDraws / least, 1, 0.02);
  double norm = 0;
  for (float v : values) norm += static_cast<double>(v) * v;
  EXPECT_LT(least, *codec->NmseBound(values.size()) * norm);
}

TEST(Atomo, NothingIsDroppedThatNeedNotBe) {
  std::vector<float> values(100);
  for (size_t i = 0; i < 8; ++i) values[9 * i] = static_cast<float>(i) - 3.5f;
  for (const std::string spec :
       {"atomo:k=8,bits=32", "atomo:k=50,bits=32", "atomo:ratio=1,bits=32"}) {
    const std::vector<DrawnValue> outcomes = Outcomes(spec, values, 20);
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(outcomes[i].value, values[i]) << i;
  }
}

// Magnitudes between two denormals were rounded to the lower one, so that far more were kept.
TEST(Atomo, NoMoreAreKeptOfTheLeastNumbersThereAre) {
  constexpr float kUnit = std::numeric_limits<float>::denorm_min();
  for (const float units : {1.0F, 2.0F, 3.0F}) {
    for (const std::string ratio : {"0.1", "0.3", "0.45", "0.67"}) {
      const std::vector<float> values(100000, units * kUnit);
      const auto codec = *MakeCodec("atomo:bits=32,ratio=" + ratio);
      Workspace work;
      std::vector<uint8_t> frame(codec->MaxFrameBytes(values.size()));
      std::vector<float> q(values.size());
      const auto size = codec->Encode(values, {7}, work, frame);
      ASSERT_TRUE(size.ok()) << size.status().ToString();
      ASSERT_TRUE(DecodeFrame(std::span(frame).first(*size), work, q).ok());
      double sum = 0;
      for (const float v : q) sum += static_cast<double>(v) / static_cast<double>(kUnit);
      // Where a tenth is kept, the mean of so many has a standard deviation of 1 %.
      EXPECT_NEAR(sum / 100000, units, .15 * static_cast<double>(units)) << ratio;
    }
  }
}

TEST(Atomo, ASignIsEnoughForWhatMayBeDropped) {
  std::mt19937 generator(2);
  std::normal_distribution<float> normal;
  std::vector<float> values(200000);
  for (float& v : values) v = normal(generator);
  const auto codec = *MakeCodec("atomo:ratio=0.01");
  Workspace work;
  std::vector<uint8_t> frame(codec->MaxFrameBytes(values.size()));
  const auto size = codec->Encode(values, {7}, work, frame);
  ASSERT_TRUE(size.ok());
  // 2000 coordinates, give or take 6 deviations, of 8.2 bits for the position and 1 for the
  // sign.
  EXPECT_LT(8.0 * static_cast<double>(*size), (2000 + 6 * 45) * 9.3 + 8 * 100);
}

TEST(Atomo, SaysWhatIsWrong) {
  EXPECT_EQ((*MakeCodec("atomo"))->spec(), "atomo:ratio=0.01,bits=16");
  EXPECT_THAT(MakeCodec("atomo:ratio=2").status().message(), HasSubstr("codec 'atomo'"));
  const std::vector<float> values(1000, 3e38f);
  Workspace work;
  std::vector<uint8_t> frame(10000);
  const Status status = (*MakeCodec("atomo"))->Encode(values, {1}, work, frame).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(status.message(), HasSubstr("scale the gradient down"));
}

}  // namespace
}  // namespace elastiquant
