#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "elastiquant/codec/elastic_test_util.h"

namespace elastiquant {
namespace {

std::vector<float> RoundTrip(const std::string& spec, const std::vector<float>& v,
                             uint64_t key = 7) {
  return Decode(Encode(*Make(spec), v, {key}), v.size());
}

// Standard deviation 4.949747, so the clip at 12.37 leaves the scale at 10.
TEST(TernGrad, KeepsACoordinateIffTheRandomNumberIsBelowItsShare) {
  const std::vector<float> v{1, -2, 3, -10};
  for (uint64_t key = 0; key < 300; ++key) {
    const std::vector<float> q = RoundTrip("terngrad", v, key);
    for (uint32_t i = 0; i < 4; ++i) {
      const double u = RandomBits(MakeLaneKeys({key}), i) * 0x1p-32;
      const float kept = v[i] < 0 ? -10.0f : 10.0f;
      ASSERT_EQ(q[i], u < std::abs(v[i]) / 10 ? kept : 0) << "u = " << u;
    }
  }
}

TEST(TernGrad, ClipsAtTwoAndAHalfStandardDeviations) {
  std::vector<float> v(100, 1.0f);
  for (size_t i = 0; i < 50; ++i) v[i] = -1;
  v[99] = 1000;
  // The mean is taken off: sigma^2 = mean of squares - mean^2.
  const double mean = (1000.0 - 1) / 100, sigma = std::sqrt((99 + 1e6) / 100 - mean * mean);
  const std::vector<float> q = RoundTrip("terngrad", v);
  EXPECT_NEAR(q[99], 2.5 * sigma, 1e-3);
  EXPECT_EQ(RoundTrip("terngrad:clip=0", v)[99], 1000);
  EXPECT_EQ(RoundTrip("terngrad:clip=1000", v)[99], 1000);
}

TEST(TernGrad, ValuesThatAreAllTheSameAreNotCut) {
  const std::vector<float> v(300, -0.7f);
  EXPECT_EQ(RoundTrip("terngrad", v), v);
}

TEST(TernGrad, SharedScaleIsTheSameForAll) {
  const std::vector<float> q = RoundTrip("terngrad:scale=2,bucket=16", Gaussian(1000));
  for (const float x : q) EXPECT_TRUE(x == 0 || std::abs(x) == 2) << x;
  EXPECT_EQ(Make("terngrad:scale=2")->codec_class(), CodecClass::kBiased);
}

// s |v|_1 - |v|_2^2.
TEST(TernGrad, VarianceIsThatOfTheFormula) {
  const std::vector<float> v = Gaussian(700);
  double l1 = 0, l2 = 0, s = 0;
  for (const float x : v) {
    l1 += std::abs(static_cast<double>(x));
    l2 += static_cast<double>(x) * x;
    s = std::max(s, std::abs(static_cast<double>(x)));
  }
  double sum = 0;
  constexpr int kDraws = 400;
  for (uint64_t t = 0; t < kDraws; ++t) {
    sum += Nmse(v, RoundTrip("terngrad:clip=0", v, DeriveKey(1, t, 0, 0).value));
  }
  EXPECT_NEAR(sum / kDraws, s * l1 / l2 - 1, .02 * s * l1 / l2);
}

// One coordinate of s, the others of s / (1 + sqrt d): the worst vector there is.
TEST(TernGrad, TheBoundIsMet) {
  constexpr size_t d = 256;
  std::vector<float> v(d, 1.0f / 17);
  v[0] = 1;
  double sum = 0;
  constexpr int kDraws = 3000;
  for (uint64_t t = 0; t < kDraws; ++t) {
    sum += Nmse(v, RoundTrip("terngrad:clip=0", v, DeriveKey(1, t, 0, 0).value));
  }
  const auto bound = Make("terngrad:clip=0")->NmseBound(d);
  ASSERT_TRUE(bound.has_value());
  EXPECT_NEAR(*bound, (16.0 - 1) / 2, 1e-4);
  EXPECT_NEAR(sum / kDraws, *bound, .15);
}

TEST(TernGrad, FiveDigitsTakeAByte) {
  EXPECT_EQ(Encode(*Make("terngrad:bucket=0"), Gaussian(20000), {1}).size(),
            32u + 12 + 4 + 4000);
}

TEST(TernGrad, ErrorsNameTheCodecAndWhatIsValid) {
  const auto message = [](const char* spec) { return MakeCodec(spec).status().message(); };
  EXPECT_EQ(message("terngrad:clip=-1"),
            "codec 'terngrad': clip=-1 is not valid; use 0 for none, or a number up to 1000");
  EXPECT_EQ(message("terngrad:scale=1,clip=2"),
            "codec 'terngrad': scale is a clip of its own; give no other");
}

}  // namespace
}  // namespace elastiquant
