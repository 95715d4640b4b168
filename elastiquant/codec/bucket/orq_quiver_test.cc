#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"

namespace elastiquant {
namespace {

TEST(Orq, ValuesOnLevelsAreKept) {
  const std::vector<float> v{.4f, -1, 1, 0, -.5f};
  EXPECT_EQ(Decode(Encode(*Make("orq:levels=5"), v, {3}), v.size()), v);
}

// Gaussian, buckets of 512.
TEST(Orq, GaussianErrorIsAsPredicted) {
  const std::vector<float> v = Gaussian(size_t{1} << 17);
  EXPECT_NEAR(MeanNmse("orq:levels=3,bucket=512", v, 3), 1.40, .03);
  EXPECT_NEAR(MeanNmse("orq:levels=5,bucket=512", v, 3), .289, .005);
  EXPECT_NEAR(MeanNmse("orq:levels=9,bucket=512", v, 3), .0666, .001);
}

TEST(Orq, ClippingCutsOffAtStandardDeviations) {
  std::vector<float> v = Gaussian(2048);
  v[7] = 1000;
  const std::vector<float> q = Decode(Encode(*Make("orq:clip=2.5"), v, {1}), v.size());
  double mean = 0, squares = 0;
  for (const float x : v) {
    mean += static_cast<double>(x) / 2048;
    squares += static_cast<double>(x) * x / 2048;
  }
  EXPECT_NEAR(q[7], 2.5 * std::sqrt(squares - mean * mean), 1e-3);
  EXPECT_EQ(Make("orq:clip=2.5")->codec_class(), CodecClass::kBiased);
}

// One bucket of 1500: .0761 for ORQ, .0750 for the optimum.
TEST(Quiver, IsTheOptimumOrqComesNearTo) {
  double orq = 0, quiver = 0;
  constexpr unsigned kVectors = 20;
  for (unsigned seed = 1; seed <= kVectors; ++seed) {
    const std::vector<float> v = Gaussian(1500, seed);
    orq += MeanNmse("orq:levels=9", v, 4) / kVectors;
    quiver += MeanNmse("quiver:levels=9", v, 4) / kVectors;
  }
  EXPECT_NEAR(orq, .0761, .002);
  EXPECT_NEAR(quiver, .0750, .002);
}

TEST(Quiver, TheHistogramComesNearToTheOptimum) {
  const std::vector<float> v = Gaussian(16384);
  const double exact = MeanNmse("quiver:bucket=4096", v, 3);
  EXPECT_NEAR(MeanNmse("quiver:bins=400,bucket=4096", v, 3) / exact, 1, .03);
}

TEST(Fitted, BoundsAreThoseOfThreeLevels) {
  EXPECT_NEAR(*Make("orq:levels=3,bucket=256")->NmseBound(5000), 7.5, 1e-4);
  EXPECT_NEAR(*Make("quiver:bucket=256")->NmseBound(5000), 7.5, 1e-4);
  EXPECT_NEAR(*Make("quiver:bucket=256,bins=16")->NmseBound(5000), 7.5 + .5, 1e-4);
  EXPECT_FALSE(Make("quiver:levels=3,bins=16")->NmseBound(5000).has_value());
}

// Nine digits take 16 bits for five, with 9 levels for each bucket.
TEST(Fitted, DigitsArePackedToWithinTwoPercent) {
  const size_t n = size_t{1} << 16, header = 32 + 12;
  const size_t size = Encode(*Make("orq:bucket=2048"), Gaussian(n), {1}).size();
  const size_t levels = n / 2048 * 9 * 4;
  EXPECT_LE(static_cast<double>(8 * (size - header - levels)),
            1.02 * std::log2(9) * static_cast<double>(n));
}

TEST(Fitted, ErrorsNameTheCodecAndWhatIsValid) {
  const auto message = [](const char* spec) { return MakeCodec(spec).status().message(); };
  EXPECT_EQ(message("orq:levels=4"), "codec 'orq': levels=4 is not valid; use 3, 5 or 9");
  EXPECT_EQ(message("quiver:levels=17"),
            "codec 'quiver': levels=17 is not valid; use 3 to 16, 32, 64, 128 or 256");
  EXPECT_EQ(message("quiver:bins=15"),
            "codec 'quiver': bins=15 is not valid; use 0 for the exact optimum, or from the "
            "number of levels to 32767");
  EXPECT_EQ(message("orq:bucket=0"), "codec 'orq': bucket=0 is not valid; use 1 to 32768");
}

}  // namespace
}  // namespace elastiquant
