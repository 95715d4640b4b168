#include "elastiquant/theory/rate_distortion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

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
