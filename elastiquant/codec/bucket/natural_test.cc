#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"

namespace elastiquant {
namespace {

TEST(Natural, PowersOfTwoAreKept) {
  const std::vector<float> v{1, -2, 0.25f, 0x1p-126f, -0x1p127f, 0, 1024};
  EXPECT_EQ(RoundTrip("natural", v), v);
  EXPECT_EQ(RoundTrip("natural|rans", v), v);
}

TEST(Natural, OthersGoToOneOfBothNeighbours) {
  std::vector<float> v(4000, -2.5f);
  size_t up = 0;
  for (const float q : RoundTrip("natural", v)) {
    ASSERT_TRUE(q == -2 || q == -4) << q;
    up += q == -4 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(up) / 4000, .25, .03);
}

// r (between 1 and 2): (2 - r)(r - 1), at most 1/8 of r^2, at r = 4/3.
TEST(Natural, TheBoundOfAnEighthIsMet) {
  const std::vector<float> v(20000, 4.0f / 3);
  EXPECT_NEAR(Nmse(v, RoundTrip("natural", v)), .125, .003);
  EXPECT_EQ(*Make("natural")->NmseBound(1), .125);
}

// The integral of (2 - r)(r - 1) against r^2 for a density of 1/r: 1/12 of the square at most.
TEST(Natural, GaussianErrorIsAsPredicted) {
  const std::vector<float> v = Gaussian(size_t{1} << 18);
  double expected = 0, norm = 0;
  for (const float x : v) {
    const double r = std::abs(static_cast<double>(x));
    const double a = std::exp2(std::floor(std::log2(r)));
    expected += (2 * a - r) * (r - a);
    norm += r * r;
  }
  EXPECT_NEAR(Nmse(v, RoundTrip("natural", v)) / (expected / norm), 1, .02);
}

TEST(Natural, NineBitsOrWhatTheExponentsTell) {
  const std::vector<float> v = Gaussian(size_t{1} << 16);
  EXPECT_EQ(Encode(*Make("natural"), v, {1}).size(), 32u + 4 + v.size() * 9 / 8);
  const size_t coded = Encode(*Make("natural|rans"), v, {1}).size();
  EXPECT_LT(coded, v.size() * 375 / 800);
}

TEST(Natural, ValuesThatCouldBecomeInfiniteAreRefused) {
  Workspace work;
  const auto codec = Make("natural");
  std::vector<uint8_t> frame(codec->MaxFrameBytes(2));
  const Status status =
      codec->Encode(std::vector<float>{1, 0x1.8p127f}, {1}, work, frame).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_NE(status.message().find("coordinate 1"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace elastiquant
