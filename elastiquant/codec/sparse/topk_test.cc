#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/sparse/sparse_select.h"

namespace elastiquant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<uint8_t> Encoded(const std::string& spec, std::span<const float> values) {
  const auto codec = *MakeCodec(spec);
  Workspace work(2);
  std::vector<uint8_t> frame(codec->MaxFrameBytes(values.size()));
  const auto size = codec->Encode(values, {9}, work, frame);
  EXPECT_TRUE(size.ok()) << size.status().ToString();
  frame.resize(size.ok() ? *size : 0);
  return frame;
}
std::vector<float> Decoded(const std::string& spec, const std::vector<float>& values) {
  Workspace work(2);
  std::vector<float> decoded(values.size(), 7.0f);
  const Status status = DecodeFrame(Encoded(spec, values), work, decoded);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return decoded;
}

std::vector<float> TopKByHand(const std::vector<float>& values, size_t k) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return std::abs(values[a]) > std::abs(values[b]); });
  std::vector<float> kept(values.size());
  for (size_t i = 0; i < std::min(k, values.size()); ++i) kept[order[i]] = values[order[i]];
  return kept;
}

// Vectors whose k-th largest magnitude is hard to find.
std::vector<std::vector<float>> SelectionInputs(size_t n) {
  std::vector<std::vector<float>> inputs{Gaussian(n), std::vector<float>(n, -2.0f)};
  std::vector<float> ties(n), few(n), falling(n), end(n, 1e-3f);
  for (size_t i = 0; i < n; ++i) {
    ties[i] = static_cast<float>(static_cast<int>(i * 7 % 5) - 2);
    few[i] = i % 97 == 0 ? 0x1p-149f * static_cast<float>(i % 13) : 0.0f;
    falling[i] = 1.0f / static_cast<float>(i + 1);
    if (i + n / 100 >= n) end[i] = static_cast<float>(i);  // all in one place
  }
  inputs.insert(inputs.end(), {ties, few, falling, end});
  return inputs;
}

TEST(TopK, KeepsTheLargestAndOfEqualOnesTheFirst) {
  for (size_t n : {1u, 2u, 10u, 1000u, 5000u, 100000u}) {
    for (const std::vector<float>& values : SelectionInputs(n)) {
      for (size_t k : {size_t{1}, n / 100 + 1, n / 3 + 1, n}) {
        const std::string spec = "topk:k=" + std::to_string(k) + ",bits=32";
        ASSERT_EQ(Decoded(spec, values), TopKByHand(values, k)) << n << " " << k;
      }
    }
  }
}

TEST(TopK, TheSamplesThresholdKeepsAboutAsManyOfTheLargest) {
  for (size_t n : {1u, 50u, 1000u, 100000u}) {
    for (const std::vector<float>& values : SelectionInputs(n)) {
      for (double ratio : {0.001, 0.05, 0.5, 1.0}) {
        const auto exact = static_cast<size_t>(ratio * static_cast<double>(n) + 0.5);
        const size_t k = std::max<size_t>(exact, 1);
        const std::vector<float> kept =
            Decoded("topk:bits=32,method=sampled,ratio=" + std::to_string(ratio), values);
        const auto nonzero = [](float v) { return v != 0; };
        const auto count = static_cast<size_t>(std::ranges::count_if(kept, nonzero));
        const auto all = static_cast<size_t>(std::ranges::count_if(values, nonzero));
        EXPECT_GE(count, std::min(all, k - k / 5));
        EXPECT_LE(count, k + 3 * k / 10);
        if (count != k) {
          ASSERT_EQ(kept, TopKByHand(values, count)) << n << " " << ratio;
        }
      }
    }
  }
}

TEST(TopK, ThresholdKeepsWhatReachesIt) {
  const std::vector<float> values{0.5f, -0.25f, 0.2f, 0, -3, 0.25f};
  EXPECT_THAT(Decoded("threshold:value=0.25,bits=32", values),
              ElementsAre(0.5f, -0.25f, 0, 0, -3, 0.25f));
  // The error is absolute: below n value^2.
  const std::vector<float> many = Gaussian(10000);
  const std::vector<float> kept = Decoded("threshold:value=1.5,bits=32", many);
  double error = 0;
  for (size_t i = 0; i < many.size(); ++i) error += std::pow(many[i] - kept[i], 2);
  EXPECT_LT(error, 10000 * 1.5 * 1.5);
}

TEST(TopK, APositionCostsLittleMoreThanItsEntropy) {
  constexpr size_t kCount = 1 << 20;
  const std::vector<float> values = Gaussian(kCount);
  const auto bits_of_index = [&](const std::string& ratio, double k) {
    const size_t frame = Encoded("topk:ratio=" + ratio, values).size();
    const double bits = 8.0 * static_cast<double>(frame - kFrameHeaderBytes);
    return bits / k - 16;
  };
  EXPECT_LT(bits_of_index("0.001", 1048.576), 12);
  EXPECT_LT(bits_of_index("0.01", 10485.76), 8.4);
  EXPECT_LT(bits_of_index("0.1", 104857.6), 4.9);
}

TEST(TopK, ValuesOfSixteenBitsHaveTheRangeOfTheMessage) {
  for (float scale : {1e-30f, 1e-9f, 1.0f, 1e9f, 1e30f}) {
    std::vector<float> values = Gaussian(1000);
    for (float& v : values) v *= scale;
    const std::vector<float> kept = Decoded("topk:ratio=1", values);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(kept[i], values[i], 0x1p-11f * std::abs(values[i])) << scale;
    }
  }
  const float most = std::numeric_limits<float>::max();
  EXPECT_NEAR(Decoded("topk:ratio=1", {most})[0] / most, 1, 0x1p-11);
}

// sum of inputs = sum of what was sent + residual
TEST(TopK, ErrorFeedbackLosesNothing) {
  const auto codec = *MakeCodec("topk:ratio=0.02,bits=4|ef");
  Workspace work;
  constexpr size_t kCount = 500;
  std::vector<float> before(kCount), after(kCount), decoded(kCount);
  std::vector<double> inputs(kCount), sent(kCount);
  std::vector<uint8_t> frame(codec->MaxFrameBytes(kCount));
  for (unsigned t = 0; t < 200; ++t) {
    const std::vector<float> values = Gaussian(kCount, t);
    const std::span<const float> in[] = {before};
    const std::span<float> out[] = {after};
    const auto size = codec->EncodeNext(values, {t}, work, frame, in, out);
    ASSERT_TRUE(size.ok());
    ASSERT_TRUE(DecodeFrame(std::span(frame).first(*size), work, decoded).ok());
    for (size_t i = 0; i < kCount; ++i) {
      inputs[i] += values[i];
      sent[i] += decoded[i];
    }
    std::swap(before, after);
  }
  for (size_t i = 0; i < kCount; ++i) EXPECT_NEAR(inputs[i], sent[i] + before[i], 1e-3) << i;
}

TEST(TopK, FramesAreGatheredByAll) {
  EXPECT_EQ((*MakeCodec("topk"))->exchange(), Exchange::kSparse);
  EXPECT_EQ((*MakeCodec("topk|ef"))->exchange(), Exchange::kSparse);
  EXPECT_EQ((*MakeCodec("topk|dgc"))->exchange(), Exchange::kSparse);
  EXPECT_EQ((*MakeCodec("topk:bits=8|ef"))->exchange(), Exchange::kAllGather);
  EXPECT_EQ((*MakeCodec("topk|rotate"))->exchange(), Exchange::kAllGather);
}

TEST(TopK, SaysWhichValuesAreValid) {
  EXPECT_EQ((*MakeCodec("topk"))->spec(), "topk:ratio=0.01,bits=16,method=exact");
  EXPECT_THAT(MakeCodec("topk:ratio=0").status().message(), HasSubstr("above 0, up to 1"));
  EXPECT_THAT(MakeCodec("topk:ratio=1.5").status().message(), HasSubstr("above 0, up to 1"));
  EXPECT_THAT(MakeCodec("topk:ratio=nan").status().message(), HasSubstr("above 0, up to 1"));
  EXPECT_THAT(MakeCodec("topk:k=0").status().message(), HasSubstr("whole number from 1"));
  EXPECT_THAT(MakeCodec("topk:k=99999999999").status().message(), HasSubstr("to 4294967295"));
  EXPECT_THAT(MakeCodec("topk:k=5,ratio=0.1").status().message(), HasSubstr("exclude"));
  EXPECT_THAT(MakeCodec("topk:bits=12").status().message(), HasSubstr("32, 16, 8, 4 or exact"));
  EXPECT_THAT(MakeCodec("topk:method=fast").status().message(), HasSubstr("exact or sampled"));
  EXPECT_THAT(MakeCodec("threshold:value=0").status().message(), HasSubstr("above 0"));
  EXPECT_THAT(MakeCodec("threshold:value=inf").status().message(), HasSubstr("above 0"));
  for (const char* value : {"1e-50", "1e39"}) {
    EXPECT_THAT(MakeCodec(std::string("threshold:value=") + value).status().message(),
                HasSubstr("from 1e-45 to 3.4e38"));
  }
}

TEST(Drawn, AreTheSmallestNumbers) {
  Workspace work(3);
  const LaneKeys keys{123, 456};
  for (size_t n : {1u, 2u, 100u, 70000u}) {
    for (size_t k : {size_t{1}, n / 50 + 1, n / 2 + 1, n}) {
      std::vector<std::pair<uint32_t, uint32_t>> order(n);
      for (uint32_t i = 0; i < n; ++i) order[i] = {RandomBits(keys, i), i};
      std::ranges::sort(order);
      std::vector<uint32_t> expected(k);
      for (size_t i = 0; i < k; ++i) expected[i] = order[i].second;
      std::ranges::sort(expected);
      const std::span<uint32_t> drawn = SelectDrawn(keys, n, k, work);
      EXPECT_TRUE(std::ranges::equal(drawn, expected)) << n << " " << k;
    }
  }
}

}  // namespace
}  // namespace elastiquant
