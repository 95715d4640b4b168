#include "elastiquant/codec/bucket/shared_scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"

namespace elastiquant {
namespace {

using Floats = std::vector<float>;

// Some workers' gradients, their scales and the shared ones.
struct Workers {
  Workers(const std::string& spec, size_t n, int count) : codec(Make(spec)) {
    const size_t scales = shared_scale().ScaleCount(n);
    shared.resize(scales);
    for (int w = 0; w < count; ++w) {
      Floats v = Gaussian(n, static_cast<unsigned>(w + 1));
      for (float& x : v) x *= static_cast<float>(1 + w % 3);
      Floats measured(scales);
      EXPECT_TRUE(shared_scale().Measure(v, work, measured).ok());
      std::ranges::transform(shared, measured, shared.begin(),
                             [](float a, float b) { return std::max(a, b); });
      gradients.push_back(std::move(v));
      own.push_back(std::move(measured));
    }
  }
  const SharedScale& shared_scale() const { return *codec->shared_scale(); }
  size_t n() const { return gradients[0].size(); }
  int count() const { return static_cast<int>(gradients.size()); }

  std::vector<uint8_t> FrameOf(size_t w, uint64_t step = 0) {
    std::vector<uint8_t> frame(codec->MaxFrameBytes(n()));
    const auto size = shared_scale().Encode(gradients[w], own[w], shared,
                                            DeriveKey(1, step, w, 0), work, frame);
    EXPECT_TRUE(size.ok()) << size.status().ToString();
    frame.resize(size.ok() ? *size : 0);
    return frame;
  }
  Floats Sums(uint64_t step = 0) {
    Floats sums(n());
    for (size_t w = 0; w < gradients.size(); ++w) {
      EXPECT_TRUE(shared_scale().AddCodes(FrameOf(w, step), shared, work, sums).ok());
    }
    return sums;
  }
  std::vector<uint8_t> MeanFrame(const Floats& sums) {
    std::vector<uint8_t> frame(shared_scale().MaxMeanBytes(n(), count()));
    const auto size = shared_scale().EncodeMean(sums, count(), shared, {9}, work, frame);
    EXPECT_TRUE(size.ok()) << size.status().ToString();
    frame.resize(size.ok() ? *size : 0);
    return frame;
  }

  std::shared_ptr<const Codec> codec;
  std::vector<Floats> gradients, own;
  Floats shared;
  Workspace work;
};

class SharedScaleOf : public testing::TestWithParam<std::tuple<const char*, size_t, int>> {};
INSTANTIATE_TEST_SUITE_P(All, SharedScaleOf,
                         testing::Combine(testing::Values("terngrad", "terngrad:bucket=33|rans",
                                                          "terngrad:clip=0,bucket=0",
                                                          "terngrad:scale=2,bucket=100"),
                                          testing::Values(0, 1, 33, 5000, 40000),
                                          testing::Values(1, 2, 3, 5, 8, 16, 127)));

TEST_P(SharedScaleOf, SumsAreThoseOfTheFramesAndTheMeanIsExact) {
  const auto [spec, n, count] = GetParam();
  Workers workers(spec, n, count);
  const size_t bucket = n == 0 ? 1 : workers.codec->granule();
  std::vector<int> plain(n);
  for (size_t w = 0; w < static_cast<size_t>(count); ++w) {
    const Floats q = Decode(workers.FrameOf(w), n);
    for (size_t i = 0; i < n; ++i) {
      const float scale = workers.shared[bucket == 0 ? 0 : i / bucket];
      ASSERT_TRUE(q[i] == 0 || std::abs(q[i]) == scale) << i;
      plain[i] += q[i] == 0 ? 0 : q[i] > 0 ? 1 : -1;
    }
  }
  const Floats sums = workers.Sums();
  ASSERT_TRUE(std::ranges::equal(sums, plain));
  const Floats mean = Decode(workers.MeanFrame(sums), n);
  for (size_t i = 0; i < n; ++i) {
    const float scale = workers.shared[bucket == 0 ? 0 : i / bucket];
    ASSERT_EQ(mean[i], scale * (static_cast<float>(plain[i]) / static_cast<float>(count)));
  }
}

TEST(SharedScale, WithItsOwnScaleAWorkerSendsItsOrdinaryFrame) {
  for (const char* spec : {"terngrad", "terngrad:clip=0,bucket=0|rans", "terngrad:clip=1"}) {
    Workers workers(spec, 10000, 1);
    EXPECT_EQ(workers.FrameOf(0),
              Encode(*workers.codec, workers.gradients[0], DeriveKey(1, 0, 0, 0)));
  }
}

// As the paper clips: each worker by its own deviation, before the scale is shared.
TEST(SharedScale, AWorkerCutsAtItsOwnClip) {
  constexpr size_t n = 2000;
  Workers workers("terngrad:bucket=0", n, 3);
  workers.gradients[0][7] = 1000;  // its own clip is near 56, the shared scale 10000
  ASSERT_TRUE(
      workers.shared_scale().Measure(workers.gradients[0], workers.work, workers.own[0]).ok());
  workers.shared[0] = 10000;
  int kept = 0;
  constexpr int kDraws = 4000;
  for (uint64_t step = 0; step < kDraws; ++step) {
    kept += Decode(workers.FrameOf(0, step), n)[7] != 0;
  }
  const double share = static_cast<double>(workers.own[0][0]) / 10000;
  EXPECT_NEAR(share, .0056, .0003);
  EXPECT_NEAR(static_cast<double>(kept) / kDraws, share, 5 * std::sqrt(share / kDraws));
}

TEST(SharedScale, TheMeanIsUnbiased) {
  constexpr size_t n = 300;
  Workers workers("terngrad:clip=0", n, 3);
  std::vector<double> sum(n), square(n), truth(n);
  constexpr int kDraws = 3000;
  for (uint64_t step = 0; step < kDraws; ++step) {
    const Floats sums = workers.Sums(step);
    for (size_t i = 0; i < n; ++i) {
      const double mean = static_cast<double>(workers.shared[0] * sums[i]) / 3;
      sum[i] += mean;
      square[i] += mean * mean;
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (const Floats& g : workers.gradients) truth[i] += static_cast<double>(g[i]) / 3;
    const double mean = sum[i] / kDraws;
    const double spread = std::sqrt((square[i] / kDraws - mean * mean) / kDraws);
    EXPECT_LT(std::abs(mean - truth[i]), 5 * spread) << i;
  }
}

TEST(SharedScale, SumsTakeAboutTheirEntropy) {
  constexpr size_t n = 100000;
  for (const int count : {2, 4, 8, 16}) {
    Workers workers("terngrad", n, count);
    const Floats sums = workers.Sums();
    std::vector<double> counts(static_cast<size_t>(2 * count + 1));
    for (const float s : sums) ++counts[static_cast<size_t>(static_cast<int>(s) + count)];
    double entropy = 0;
    for (const double c : counts) {
      if (c > 0) entropy -= c / n * std::log2(c / n);
    }
    const double bits = 8.0 * static_cast<double>(workers.MeanFrame(sums).size()) / n;
    EXPECT_LT(bits, 1.02 * entropy + .03) << count;
    EXPECT_LT(bits, std::log2(2 * count + 1));
  }
}

TEST(SharedScale, RefusesFramesOfOtherScalesCodecsAndLengths) {
  constexpr size_t n = 5000;
  Workers workers("terngrad", n, 2);
  Floats sums(n), short_sums(n - 1);
  const auto refusal = [&](const std::vector<uint8_t>& frame, Floats& into) {
    const Status status =
        workers.shared_scale().AddCodes(frame, workers.shared, workers.work, into);
    EXPECT_EQ(status.code(), StatusCode::kCorruptData);
    return status.message();
  };
  // The ordinary frame of worker 0, whose values are half as large as those of worker 1.
  EXPECT_EQ(refusal(Encode(*workers.codec, workers.gradients[0], {1}), sums),
            "frame payload check failed: the scale of bucket 0 is not the shared one");
  EXPECT_EQ(refusal(Encode(*Make("terngrad:bucket=100"), workers.gradients[0], {1}), sums),
            "the frame is not one of codec 'terngrad:clip=2.5,bucket=2048'");
  EXPECT_EQ(refusal(Encode(*Make("fp32"), workers.gradients[0], {1}), sums),
            "the frame is not one of codec 'terngrad:clip=2.5,bucket=2048'");
  EXPECT_EQ(refusal(workers.FrameOf(0), short_sums), "the frame has 5000 values, not 4999");
  EXPECT_EQ(sums, Floats(n)) << "nothing was added";
}

TEST(SharedScale, ANanIsNotMeasured) {
  Workers workers("terngrad", 5000, 1);
  workers.gradients[0][4321] = std::numeric_limits<float>::quiet_NaN();
  const Status status =
      workers.shared_scale().Measure(workers.gradients[0], workers.work, workers.shared);
  EXPECT_EQ(status.code(), StatusCode::kNonFinite);
  EXPECT_NE(status.message().find("4321"), std::string::npos) << status.ToString();
}

// Worker 0 has the largest value, and the others those that cost most under its scale.
TEST(SharedScale, TheBoundOfAllWorkersIsMet) {
  constexpr size_t d = 64;
  constexpr int kWorkers = 4;
  Workers workers("terngrad:clip=0", d, kWorkers);
  for (Floats& g : workers.gradients) g.assign(d, 1.0f / 17);  // sqrt(4 * 64) = 16
  workers.gradients[0][0] = 1;
  workers.shared = {1};
  double error = 0, square = 0;
  constexpr int kDraws = 2000;
  for (size_t w = 0; w < kWorkers; ++w) {
    const Floats& g = workers.gradients[w];
    workers.own[w] = {std::ranges::max(g)};
    double norm = 0;
    for (const float x : g) norm += static_cast<double>(x) * x;
    square += norm;
    for (uint64_t step = 0; step < kDraws; ++step) {
      error += Nmse(g, Decode(workers.FrameOf(w, step), d)) * norm / kDraws;
    }
  }
  const auto bound = workers.shared_scale().Among(kWorkers)->NmseBound(d);
  ASSERT_TRUE(bound.has_value());
  EXPECT_NEAR(*bound, (16.0 - 1) / 2, 1e-4);
  EXPECT_NEAR(error / square, *bound, .15);
  EXPECT_FALSE(Make("terngrad")->shared_scale()->Among(4)->NmseBound(d).has_value());
}

TEST(SharedScale, IsWhatTerngradAsksForUnlessItIsWrapped) {
  EXPECT_EQ(Make("terngrad")->exchange(), Exchange::kIntegerSum);
  EXPECT_EQ(Make("terngrad:scale=1|rans")->exchange(), Exchange::kIntegerSum);
  for (const char* spec : {"terngrad|ef", "terngrad|rotate", "laq", "elastic"}) {
    EXPECT_EQ(Make(spec)->exchange(), Exchange::kTwoPhase) << spec;
    EXPECT_EQ(Make(spec)->shared_scale(), nullptr) << spec;
  }
  EXPECT_EQ(Make("terngrad|dgc")->exchange(), Exchange::kAllGather);
}

}  // namespace
}  // namespace elastiquant
