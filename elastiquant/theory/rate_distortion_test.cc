#include "elastiquant/theory/rate_distortion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "elastiquant/theory/theory_test_util.h"

namespace elastiquant::theory {
namespace {

TEST(GaussianLimit, IsTheRescaledShannonLimit) {
  for (double bits : {.01, .5, 1.0, 2.0, 8.0}) {
    const double least = std::exp2(-2 * bits);
    EXPECT_NEAR(GaussianLimit(bits), least / (1 - least), 1e-9 * GaussianLimit(bits));
    EXPECT_NEAR(GaussianLimitBits(GaussianLimit(bits)), bits, 1e-9 * bits);
  }
  EXPECT_NEAR(DecibelsAboveLimit(10 * GaussianLimit(2), 2), 10, 1e-9);
  EXPECT_NEAR(10 * std::log10(kScalarGap), 1.5329, 1e-4);
}

// The closed form against the sum it stands for: the entropy of k = round(x/step + u), averaged
// over the dither u.
TEST(DitherBits, IsTheMeanEntropyOverTheDither) {
  const auto below = [](double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; };
  for (double step : {.3, 1.0, 3.0}) {
    double entropy = 0;
    constexpr int kDithers = 400;
    for (int i = 0; i < kDithers; ++i) {
      const double u = (i + .5) / kDithers - .5;
      for (int k = -200; k <= 200; ++k) {
        const double p = below((k + .5 - u) * step) - below((k - .5 - u) * step);
        if (p > 0) entropy -= p * std::log2(p) / kDithers;
      }
    }
    EXPECT_NEAR(DitherBits(step), entropy, 1e-5) << step;
  }
}

// Worked values: 2 bits give .0976, 1 bit .5514, and the gap falls to 1.53 dB.
TEST(DitherBits, WorkedValues) {
  EXPECT_NEAR(DitherBits(std::sqrt(12 * .0976)), 2, 2e-3);
  EXPECT_NEAR(DitherBits(std::sqrt(12 * .5514)), 1, 2e-3);
  const double step = .01;
  EXPECT_NEAR(DecibelsAboveLimit(step * step / 12, DitherBits(step)), 1.533, 1e-3);
}

// Integrated with 30 digits. From a coarse step on the bits are 2.6060764897 / step: nearly all
// values are in one cell, and an end of a cell is among them once in so many steps.
TEST(DitherBits, IsAccurateForFineAndCoarseSteps) {
  const std::pair<double, double> bits[] = {
      {1e-12, 41.9102327238289893}, {1e-6, 21.9786641545048753},  {1e-3, 12.012879929955019},
      {.05, 6.3691739451493601},    {.1, 5.36962455267285926},    {.3, 3.78945109859054109},
      {1, 2.10483266039762003},     {10, .260607648966824371},    {24, .108586520402852393},
      {1e2, .0260607648966845743},  {1e5, 2.60607648966845743e-5}};
  for (const auto& [step, want] : bits)
    EXPECT_NEAR(DitherBits(step), want, 1e-9 * want) << step;
  for (const double step : {1e6, 1e17, 1e300}) {
    EXPECT_NEAR(DitherBits(step) * step, 2.60607648966845743, 3e-9) << step;
  }
  EXPECT_NEAR(DitherBits(1e-300), DitherBits(1e-3) + 297 * std::log2(10), 1e-6);
  EXPECT_NEAR(DitherBits(std::nextafter(.1, 0)), DitherBits(.1), 1e-12);
}

// The codec comes near it: its model is the density and its coder all but ideal.
TEST(DitherBits, IsWhatTheDitherCodecNeeds) {
  const auto v = Gaussian(size_t{1} << 17, 3);
  for (const char* bits : {"2", "3"}) {
    const auto codec = Make("dither:model=gauss,bits=" + std::string(bits));
    const auto frame = Encode(*codec, v, DeriveKey(1, 2, 3, 4));
    const double rate = 8.0 * static_cast<double>(frame.size()) / static_cast<double>(v.size());
    const double nmse = Nmse(v, Decode(frame, v.size()));
    EXPECT_NEAR(DitherBits(std::sqrt(12 * nmse)), rate, .03);
    EXPECT_LE(DitherBits(std::sqrt(12 * nmse)), rate + .01);
    EXPECT_GT(nmse, GaussianLimit(rate));
  }
}

}  // namespace
}  // namespace elastiquant::theory
