#include "elastiquant/codec/elastic/level_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "elastiquant/codec/bucket/optimal_levels.h"
#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/codec/elastic/magnitude_testing.h"

namespace elastiquant {
namespace {

// Gaussian within 64 values, of scales that differ by up to 2^6.
std::vector<float> Mixed(size_t n) {
  std::vector<float> v = Gaussian(n, 3);
  for (size_t i = 0; i < n; ++i) v[i] *= std::ldexp(1.0f, -static_cast<int>(i / 64 % 7));
  return v;
}

double VarianceOf(std::span<const float> levels, const std::vector<float>& r) {
  double sum = 0;
  for (const float x : r) {
    if (x < levels[0]) {
      sum += static_cast<double>(levels[0]) * levels[0] - static_cast<double>(x) * x;
      continue;
    }
    size_t j = 0;
    while (j + 2 < levels.size() && x >= levels[j + 1]) ++j;
    sum += (static_cast<double>(levels[j + 1]) - x) * (static_cast<double>(x) - levels[j]);
  }
  return sum;
}

// Against the dynamic program over single values, QUIVER's, and its coarser form.
TEST(LevelFit, IsAsGoodAsTheOptimum) {
  const std::vector<float> r = Magnitudes(30000);
  std::vector<float> sorted = r;
  sorted.push_back(0);
  std::ranges::sort(sorted);
  for (int bits = 2; bits <= 8; ++bits) {
    Filled filled(r);
    filled.histogram.Finish();
    const FittedLevels fitted = FitWithZero(filled.histogram, bits);
    ASSERT_EQ(fitted.levels.count, LevelsOfBits(bits));
    std::vector<float> optimal(LevelsOfBits(bits));
    std::vector<uint8_t> scratch(QuiverScratchBytes(sorted.size(), optimal.size()) + 8);
    QuiverLevels(sorted, scratch, optimal);
    const double least = VarianceOf(optimal, r), variance = VarianceOf(fitted.levels.span(), r);
    EXPECT_LE(variance, (bits <= 5 ? 1.01 : 1.10) * least) << bits;
    EXPECT_NEAR(fitted.variance, variance, .1 * variance) << bits;
  }
}

// No other first level, and no other place of any level, is better.
TEST(LevelFit, WithoutZeroNoLevelCanBeMovedToAdvantage) {
  const std::vector<float> r = Magnitudes(50000);
  for (int bits = 2; bits <= kMostBitsWithoutZero; ++bits) {
    Filled filled(r);
    filled.histogram.Finish();
    const FittedLevels fitted = FitWithoutZero(filled.histogram, bits);
    ASSERT_EQ(fitted.levels.count, LevelsOfBits(bits));
    EXPECT_GT(fitted.levels.values[0], 0);
    const double variance = VarianceOf(fitted.levels.span(), r);
    EXPECT_NEAR(fitted.variance, variance, .02 * variance);
    for (size_t j = 0; j + 1 < fitted.levels.count; ++j) {
      for (const float factor : {.9f, .97f, 1.03f, 1.1f}) {
        LevelSet moved = fitted.levels;
        moved.values[j] *= factor;
        if (moved.values[j] >= moved.values[j + 1]) continue;
        EXPECT_GT(VarianceOf(moved.span(), r), variance * .9999) << bits << " " << j;
      }
    }
  }
}

// What a zero costs decides: not one with dense values, and one with many exact zeros.
TEST(LevelFit, ZerosDecideWhetherThereIsAZero) {
  Workspace work;
  std::vector<float> v = Gaussian(50000);
  for (int bits = 2; bits <= kMostBitsWithoutZero; ++bits) {
    EXPECT_FALSE(FitLevelsTo(v, {}, 512, bits, true, work).has_zero());
    EXPECT_TRUE(FitLevelsTo(v, {}, 512, bits, false, work).has_zero());
  }
  EXPECT_TRUE(FitLevelsTo(v, {}, 512, 5, true, work).has_zero());
  for (size_t i = 0; i < v.size(); ++i) v[i] = i % 40 == 0 ? v[i] : 0;
  for (int bits = 2; bits <= kMostBitsWithoutZero; ++bits) {
    EXPECT_TRUE(FitLevelsTo(v, {}, 512, bits, true, work).has_zero()) << bits;
  }
}

// Whatever is sent, levels are such as a frame may have.
TEST(LevelFit, LevelsAreValidForAnyMessage) {
  const float max = std::numeric_limits<float>::max();
  const float tiny = std::numeric_limits<float>::denorm_min();
  std::vector<std::vector<float>> messages{
      {}, {0}, {1}, {-3}, {tiny}, {max, -max}, {0, 1}, {1, 1, 1}, {3, -4, 0, 12}};
  messages.push_back(std::vector<float>(100000, 0.0f));
  messages.push_back(std::vector<float>(100000, 2.0f));
  messages.push_back(std::vector<float>(3000, tiny));
  messages.push_back(std::vector<float>(3000, 0.5f));
  messages.back()[7] = 1;  // one distinct magnitude
  messages.push_back(std::vector<float>(200000, 0.0f));
  messages.back()[123456] = 1;  // a bucket that a sample misses
  messages.back()[123457] = .3f;
  messages.push_back(Gaussian(1000));
  messages.back()[3] = std::numeric_limits<float>::quiet_NaN();
  messages.back()[800] = std::numeric_limits<float>::infinity();
  messages.push_back(std::vector<float>(2000, 1e-30f));
  messages.back()[5] = 1e30f;
  messages.push_back(Mixed(70000));
  Workspace work;
  for (const std::vector<float>& v : messages) {
    for (int bits = 2; bits <= 8; ++bits) {
      for (const NormKind norm : {NormKind::kLinf, NormKind::kL2}) {
        for (const size_t bucket : {size_t{0}, size_t{1}, size_t{100}, size_t{8192}}) {
          const LevelSet levels = FitLevelsTo(v, {norm, 0}, bucket, bits, true, work);
          const auto checked = levels.has_zero()
                                   ? ExplicitLevels(bits, levels.span().subspan(1))
                                   : LevelsWithoutZero(bits, levels.span());
          EXPECT_TRUE(checked.ok()) << checked.status().ToString();
          EXPECT_EQ(levels.count, LevelsOfBits(bits));
          if (!levels.has_zero()) {
            EXPECT_LE(levels.values[0], LargestFirstLevel(bits) * (1 + 1e-6));
          }
        }
      }
    }
  }
}

TEST(LevelFit, HasLessErrorThanTheFixedSets) {
  for (const std::vector<float>& v : {Gaussian(1 << 18), Laplace(1 << 18), Mixed(1 << 18)}) {
    const auto nmse = [&](const std::string& spec) {
      return Nmse(v, Decode(Encode(*Make(spec), v, DeriveKey(1, 2, 3, 4)), v.size()));
    };
    for (const char* bits : {"3", "4", "5", "8"}) {
      const std::string b = std::string("bits=") + bits;
      const double fit = nmse("elastic:levels=fit," + b);
      EXPECT_LT(fit, .75 * nmse("qsgdv:" + b)) << b;
      EXPECT_LT(fit, nmse("zeroless:" + b)) << b;
      EXPECT_LT(fit, nmse("elastic:levels=exp," + b)) << b;
      EXPECT_LT(nmse("elastic:levels=fit,norm=l2,bucket=8192," + b),
                nmse("elastic:levels=exp,norm=l2,bucket=8192," + b));
    }
    EXPECT_LT(nmse("elastic:levels=fit,bits=2"), .65 * nmse("qsgdv:bits=2"));
    EXPECT_LT(nmse("elastic:levels=fit,bits=4"), .6 * nmse("qsgdv:bits=4"));
  }
}

// Levels are a function of the values alone: other keys leave them as they are.
TEST(LevelFit, TheKeyHasNoPartInTheLevels) {
  const std::vector<float> v = Mixed(30000);
  const auto codec = Make("elastic:levels=fit");
  const auto levels = [&](uint64_t key) {
    const auto frame = Encode(*codec, v, {key});
    return std::vector<uint8_t>(frame.begin() + 52, frame.begin() + 52 + 32);
  };
  EXPECT_EQ(levels(1), levels(2));
}

}  // namespace
}  // namespace elastiquant
