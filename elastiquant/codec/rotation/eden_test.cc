#include "elastiquant/codec/rotation/eden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

// x = (1, 2, 3, 5) with signs +, -, +, + before the transform.
TEST(Eden, PublishedExample) {
  const std::vector<float> rotated{3.5f, 0.5f, -4.5f, 2.5f};
  const EdenSplit split{0, 4, 1};
  uint8_t codes[4];
  const float scale = QuantizeEden(rotated, 39, split, codes);
  EXPECT_NEAR(scale, 4.443568f, 5e-6f);
  EXPECT_EQ(codes[0], 0);
  EXPECT_EQ(codes[1], 0);
  EXPECT_EQ(codes[2], 1);
  EXPECT_EQ(codes[3], 0);
  std::vector<float> back(4);
  DequantizeEden(codes, scale, split, back);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(std::abs(back[i]), 3.545455f, 1e-5f);
}

// Each centroid is the mean of a Gaussian between its bounds.
TEST(Eden, CentroidsAreLloydAndMaxs) {
  const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); };
  const auto below = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2)); };
  for (int bits = 1; bits <= 4; ++bits) {
    const std::span<const float> c = EdenCentroids(bits);
    ASSERT_EQ(c.size(), size_t{1} << (bits - 1));
    for (size_t k = 0; k < c.size(); ++k) {
      const double low = k == 0 ? 0 : (c[k - 1] + c[k]) / 2.0;
      const bool last = k + 1 == c.size();
      const double high = last ? 0 : (c[k] + c[k + 1]) / 2.0;
      const double mass = (last ? 1 : below(high)) - below(low);
      EXPECT_NEAR(c[k], (density(low) - (last ? 0 : density(high))) / mass, 2e-5);
    }
  }
}

struct EdenOutcome {
  double bits, nmse, along;  // along: of the input, in the output
};
EdenOutcome Measure(const std::string& spec, const std::vector<float>& values, uint64_t draws) {
  const auto codec = Make(spec);
  Workspace work;
  double error = 0, inner = 0, norm = 0;
  size_t bytes = 0;
  for (float v : values) norm += static_cast<double>(v) * v;
  for (uint64_t key = 1; key <= draws; ++key) {
    const std::vector<uint8_t> frame = Encode(*codec, values, {key * 77});
    bytes = frame.size();
    std::vector<float> decoded(values.size());
    EXPECT_TRUE(DecodeFrame(frame, work, decoded).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      const double v = values[i];
      error += (decoded[i] - v) * (decoded[i] - v);
      inner += decoded[i] * v;
    }
  }
  const double all = norm * static_cast<double>(draws);
  return {8.0 * static_cast<double>(bytes) / static_cast<double>(values.size()), error / all,
          inner / all};
}

// D / (1 - D), D being Lloyd and Max's distortion.
TEST(Eden, ErrorIsThatOfTheory) {
  const std::vector<float> values = Gaussian(1 << 16);
  const double expected[] = {0.5708, 0.1331, 0.03578, 0.00959};
  for (int bits = 1; bits <= 4; ++bits) {
    const EdenOutcome outcome = Measure("eden:bits=" + std::to_string(bits), values, 4);
    EXPECT_NEAR(outcome.nmse / expected[bits - 1], 1, 0.03) << bits;
    EXPECT_NEAR(outcome.bits, bits + 32.0 / 4096, 0.01);
    EXPECT_NEAR(outcome.along, 1, 1e-5);
  }
}

TEST(Eden, FractionsLieBetween) {
  const std::vector<float> values = Gaussian(1 << 15);
  double last = 10;
  for (const char* bits : {"0.25", "0.5", "1", "1.5", "2", "2.75", "3", "3.5", "4"}) {
    const EdenOutcome outcome = Measure(std::string("eden:bits=") + bits, values, 4);
    EXPECT_NEAR(outcome.bits, std::stod(bits), 0.02);
    EXPECT_NEAR(outcome.along, 1, 1e-5);
    EXPECT_LT(outcome.nmse, last);
    last = outcome.nmse;
  }
}

// What one round of signs would send to few levels. So few draws do not show the small bias
// that two rounds leave, which WhatRemainsOfSparseInputIsSmall bounds.
TEST(Eden, SparseInputHasNoBiasThatFewDrawsShow) {
  std::vector<float> values(4096, 0.0f);
  values[17] = 3;
  values[1000] = -4;
  values[4000] = 0.5f;
  const auto codec = Make("eden:bits=2");
  Workspace work;
  constexpr int kDraws = 400;
  std::vector<double> sum(values.size()), squares(values.size());
  for (uint64_t key = 0; key < kDraws; ++key) {
    std::vector<float> decoded(values.size());
    ASSERT_TRUE(DecodeFrame(Encode(*codec, values, {Mix64(key)}), work, decoded).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = decoded[i] - values[i];
      sum[i] += error;
      squares[i] += error * error;
    }
  }
  for (size_t i : {17u, 1000u, 4000u, 0u, 1u, 18u}) {
    EXPECT_LT(std::abs(sum[i]), 4.5 * std::sqrt(squares[i]) + 1e-3) << i;
  }
}

// The mean error of n values (1, .3, .3, .3, 0, ...), relative to their norm, along a direction
// orthogonal to them: the scale sees to it that there is none along themselves.
double MeanErrorAside(const std::string& spec, size_t n, int draws) {
  std::vector<float> values(n);
  values[0] = 1;
  const std::vector<double> aside{.27, -.3, -.3, -.3};
  for (size_t i = 1; i < aside.size(); ++i) values[i] = .3f;
  const auto codec = Make(spec);
  Workspace work;
  std::vector<float> decoded(n);
  double sum = 0, norm = 0, aside_norm = 0;
  for (int draw = 0; draw < draws; ++draw) {
    const auto key = DeriveKey(11, static_cast<uint64_t>(draw), 1, 1);
    EXPECT_TRUE(DecodeFrame(Encode(*codec, values, key), work, decoded).ok());
    for (size_t i = 0; i < aside.size(); ++i) sum += aside[i] * (decoded[i] - values[i]);
  }
  for (size_t i = 0; i < aside.size(); ++i) {
    norm += static_cast<double>(values[i]) * values[i];
    aside_norm += aside[i] * aside[i];
  }
  return sum / draws / std::sqrt(norm * aside_norm);
}

// The rotation is not uniform, so that a bias remains: these are bounds of its size, which the
// documentation tells.
TEST(Eden, WhatRemainsOfSparseInputIsSmall) {
  const struct {
    const char* bits;
    size_t n;
    int draws;
    double most;
  } cases[] = {{"0.25", 256, 20000, .019}, {"1", 256, 20000, .008},   {"2", 256, 20000, .006},
               {"4", 256, 20000, .0025},   {"1", 1024, 20000, .0025}, {"1", 4096, 5000, .0015}};
  for (const auto& c : cases) {
    const double error = MeanErrorAside(std::string("eden:bits=") + c.bits, c.n, c.draws);
    EXPECT_LT(std::abs(error), c.most) << c.bits << " " << c.n;
    RecordProperty("bits_" + std::string(c.bits) + "_of_" + std::to_string(c.n),
                   std::to_string(error));
  }
}

// The last coordinates, fewer than a block, are not rotated.
TEST(Eden, WhatIsSentUnchangedMayBeOfAnySize) {
  const auto codec = *MakeCodec("eden:bits=4");
  Workspace work;
  std::vector<float> values(300, 1.0F), q(300);
  std::vector<uint8_t> frame(codec->MaxFrameBytes(values.size()));
  values[299] = 1e38F;
  const auto size = codec->Encode(values, {7}, work, frame);
  ASSERT_TRUE(size.ok()) << size.status().ToString();
  ASSERT_TRUE(DecodeFrame(std::span(frame).first(*size), work, q).ok());
  EXPECT_EQ(q[299], 1e38F);
  values[299] = INFINITY;
  Status status = codec->Encode(values, {7}, work, frame).status();
  EXPECT_EQ(status.code(), StatusCode::kNonFinite);
  EXPECT_THAT(status.message(), HasSubstr("inf at coordinate 299"));
  values[299] = 1;
  values[0] = 1e38F;
  status = codec->Encode(values, {7}, work, frame).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
}

TEST(Eden, SpecsAreCheckedAndKept) {
  EXPECT_EQ(Make("eden")->spec(), "eden:bits=4");
  EXPECT_EQ(Make("eden:bits=2.50")->spec(), "eden:bits=2.5");
  EXPECT_THAT(MakeCodec("eden:bits=5").status().message(), HasSubstr("0.25 to 4"));
  EXPECT_THAT(MakeCodec("eden:bits=x").status().message(), HasSubstr("0.25 to 4"));
}

}  // namespace
}  // namespace elastiquant
