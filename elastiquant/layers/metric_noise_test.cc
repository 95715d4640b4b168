// What the noise of a codec does to the second moments of Adam, in its metric and without it
// (docs/theory.md, "Under Adam").
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/layers/metric.h"

namespace elastiquant {
namespace {

constexpr size_t kValues = 4096, kGroups = 8;
constexpr int kWorkers = 2, kSteps = 1200;
constexpr double kBeta2 = .99;

struct Noise {
  double rho = 0;  // squared error over squared norm of all messages, as the codec sees them
  std::vector<double> inflation;  // of v, over that without noise: by size of the gradient
};

// Adam's second moments over the mean of two workers' gradients, which are noise alone, whose
// sizes differ by coordinate in ascending order, from .03 to 30.
class Simulation {
 public:
  explicit Simulation(bool in_metric) : metric_(plan_, shapes_, {in_metric}) {
    for (size_t i = 0; i < kValues; ++i) {
      size_[i] = std::pow(10.0f, 3.0f * static_cast<float>(i) / kValues - 1.5f);
      v_[i] = size_[i] * size_[i] / kWorkers;  // as after some steps without noise
    }
  }

  Noise Run() {
    EXPECT_TRUE(metric_.Set({v_}).ok());
    for (int step = 0; step < kSteps; ++step) Step(step);
    Noise noise{error_ / norm_, std::vector<double>(kGroups)};
    for (size_t i = 0; i < kValues; ++i) {
      const double expected = size_[i] * size_[i] / kWorkers;
      noise.inflation[i * kGroups / kValues] +=
          sum_[i] / (kSteps / 2) / expected / (kValues / kGroups);
    }
    return noise;
  }

 private:
  // Once v has as much noise as it will have.
  static bool counts(int step) { return step >= kSteps / 2; }

  void Step(int step) {
    metric_.BeginStep();
    std::ranges::fill(mean_, 0);
    for (uint64_t worker = 0; worker < kWorkers; ++worker) {
      for (size_t i = 0; i < kValues; ++i) sent_[i] = size_[i] * normal_(generator_);
      (void)metric_.Enter(0, sent_);
      frame_.resize(codec_->MaxFrameBytes(kValues));
      const auto key = DeriveKey(1, static_cast<uint64_t>(step), worker, 0);
      frame_.resize(codec_->Encode(sent_, key, work_, frame_).value());
      ASSERT_TRUE(DecodeFrame(frame_, work_, decoded_).ok());
      for (size_t i = 0; i < kValues; ++i) {
        mean_[i] += decoded_[i] / kWorkers;
        if (!counts(step)) continue;
        const double lost = decoded_[i] - sent_[i];
        error_ += lost * lost;
        norm_ += static_cast<double>(sent_[i]) * sent_[i];
      }
    }
    metric_.Leave(0, mean_);
    for (size_t i = 0; i < kValues; ++i) {
      v_[i] = static_cast<float>(kBeta2 * v_[i] + (1 - kBeta2) * mean_[i] * mean_[i]);
      if (counts(step)) sum_[i] += v_[i];
    }
  }

  const std::vector<ParameterShape> shapes_{
      MakeParameterShape("matrix", std::vector<size_t>{64, kValues / 64})};
  const BucketPlan plan_ = PlanBuckets(shapes_, {}).value();
  Metric metric_;
  const std::shared_ptr<const Codec> codec_ = MakeCodec("dither:bits=1").value();
  Workspace work_{1};
  std::mt19937 generator_{7};
  std::normal_distribution<float> normal_;
  std::vector<float> size_ = std::vector<float>(kValues), v_ = size_, sent_ = size_,
                     decoded_ = size_, mean_ = size_;
  std::vector<double> sum_ = std::vector<double>(kValues);
  std::vector<uint8_t> frame_;
  double error_ = 0, norm_ = 0;
};

// All coordinates have the same share of noise, as large as the theory says: the optimiser
// moves as if at another learning rate.
TEST(MetricNoise, InflatesAllSecondMomentsAlikeInTheMetric) {
  const Noise noise = Simulation(/*in_metric=*/true).Run();
  EXPECT_GT(noise.rho, .2);
  for (const double inflation : noise.inflation) {
    EXPECT_NEAR(inflation, 1 + noise.rho, .06 * (1 + noise.rho));
  }
}

// Without it, small gradients drown: their steps are shorter by orders of magnitude.
TEST(MetricNoise, DrownsSmallGradientsWithoutIt) {
  const Noise noise = Simulation(/*in_metric=*/false).Run();
  EXPECT_GT(noise.inflation.front(), 1e3);
  EXPECT_LT(noise.inflation.back(), 2);
}

}  // namespace
}  // namespace elastiquant
