#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"

namespace elastiquant {
namespace {

// Digits 5, 2 and 7 of 0 ... 7.
TEST(Laq, TakesTheNearestPoint) {
  const std::vector<float> v{.3f, -.5f, 1};
  const std::vector<uint8_t> frame = Encode(*Make("laq:bits=3"), v, {1});
  ASSERT_EQ(frame.size(), 32u + 12 + 4 + 2);
  EXPECT_EQ(frame[48] | frame[49] << 8, 5 | 2 << 3 | 7 << 6);
  const std::vector<float> q = RoundTrip("laq:bits=3", v);
  EXPECT_NEAR(q[0], .428571, 1e-6);
  EXPECT_NEAR(q[1], -.428571, 1e-6);
  EXPECT_EQ(q[2], 1);
}

TEST(Laq, TheErrorIsAtMostHalfAStep) {
  const std::vector<float> v = Gaussian(4000);
  float range = 0;
  for (const float x : v) range = std::max(range, std::abs(x));
  for (int bits = 2; bits <= 8; ++bits) {
    const std::vector<float> q = RoundTrip("laq:bucket=0,bits=" + std::to_string(bits), v);
    const double half = static_cast<double>(range) / ((1 << bits) - 1);
    for (size_t i = 0; i < v.size(); ++i) {
      ASSERT_LE(std::abs(static_cast<double>(q[i]) - v[i]), half * (1 + 1e-4)) << bits;
    }
  }
}

// One value of R, the others 0, which is between two points.
TEST(Laq, TheBoundIsMet) {
  std::vector<float> v(64);
  v[3] = -2;
  EXPECT_NEAR(Nmse(v, RoundTrip("laq:bits=4", v)), 63.0 / 225, 1e-6);
  EXPECT_NEAR(*Make("laq:bits=4")->NmseBound(64), 63.0 / 225, 1e-3);
}

TEST(Laq, IsContractiveWhereTheBucketIsShortEnough) {
  EXPECT_EQ(Make("laq:bits=4,bucket=225")->codec_class(), CodecClass::kContractive);
  EXPECT_EQ(Make("laq:bits=4,bucket=227")->codec_class(), CodecClass::kBiased);
  EXPECT_EQ(Make("laq:bits=8,bucket=0")->codec_class(), CodecClass::kBiased);
}

TEST(Laq, ErrorsNameTheCodecAndWhatIsValid) {
  EXPECT_EQ(MakeCodec("laq:bits=9").status().message(),
            "codec 'laq': bits=9 is not valid; use 2 to 8");
}

}  // namespace
}  // namespace elastiquant
