#include "elastiquant/codec/bucket/zeroless.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

// Norm 12: levels +-3, +-6, +-12 have no zero in between.
TEST(Zeroless, ValuesGoToTheNeighboursInBothSigns) {
  const std::vector<float> v{3, -4, 0, 12, 2};
  const auto codec = Make("zeroless:bits=3,levels=0.25/0.5/0.75/1");
  std::vector<double> mean(v.size());
  constexpr int kDraws = 4000;
  for (uint64_t t = 0; t < kDraws; ++t) {
    const std::vector<float> q = Decode(Encode(*codec, v, DeriveKey(1, t, 0, 0)), v.size());
    ASSERT_NEAR(q[0], 3, 1e-5);
    ASSERT_TRUE(q[1] == -3 || q[1] == -6) << q[1];
    ASSERT_EQ(std::abs(q[2]), 3);
    ASSERT_EQ(q[3], 12);
    ASSERT_EQ(std::abs(q[4]), 3);
    for (size_t i = 0; i < v.size(); ++i) mean[i] += static_cast<double>(q[i]) / kDraws;
  }
  EXPECT_NEAR(mean[1], -4, .15);
  EXPECT_NEAR(mean[2], 0, .25);
  EXPECT_NEAR(mean[4], 2, .2);
}

// d = 400, each form's best p under the largest norm: .315 and .0745.
TEST(Zeroless, GaussianErrorIsBelowThatWithAZero) {
  const std::vector<float> v = Gaussian(400 * 200);
  for (const auto& [bits, expected] : {std::pair{3, .315}, std::pair{4, .0745}}) {
    double best = 1e9, best_with_zero = 1e9;
    for (int p = 30; p < 95; p += 5) {
      const std::string keys =
          ":bits=" + std::to_string(bits) + ",p=0." + std::to_string(p) + ",norm=l2,bucket=400";
      best = std::min(best, MeanNmse("zeroless" + keys, v, 1));
      best_with_zero = std::min(best_with_zero, MeanNmse("elastic" + keys, v, 1));
    }
    RecordProperty("best", std::to_string(best));
    EXPECT_NEAR(best, expected, .1 * expected) << bits;
    EXPECT_LT(best, best_with_zero) << bits;
  }
}

TEST(Zeroless, TheBoundIsMetByAVectorThatIsNearlyZero) {
  // One coordinate has the norm, the others are 0 and become +-l_1.
  std::vector<float> v(256);
  v[9] = 1;
  const double bound = *Make("zeroless:bits=3,p=0.5,bucket=256")->NmseBound(256);
  EXPECT_NEAR(bound, .125 + 256 * std::pow(.5, 6), 1e-4);
  EXPECT_NEAR(MeanNmse("zeroless:bits=3,p=0.5,bucket=256", v, 3), 255 * std::pow(.5, 6), 1e-4);
}

TEST(Zeroless, AutoIsTheRatioOfLeastBound) {
  for (double d : {33.0, 512.0, 8192.0}) {
    for (size_t half : {2, 4, 8, 128}) {
      const float p = ZerolessRatio(half, d);
      const auto bound = [&](double q) {
        return ZerolessBound(std::pow(q, static_cast<double>(half - 1)), 1 / q, d);
      };
      EXPECT_LE(bound(p), bound(std::min(.999, p + .001)) * (1 + 1e-9));
      EXPECT_LE(bound(p), bound(std::max(.001, p - .001)) * (1 + 1e-9));
    }
  }
}

TEST(Amq, IsZerolessWithAnL2NormAndBucketsOf8192) {
  std::vector<float> v = Gaussian(9000);
  EXPECT_EQ(Encode(*Make("amq:bits=4,p=0.6"), v, {3}),
            Encode(*Make("zeroless:bits=4,p=0.6,norm=l2,bucket=8192"), v, {3}));
  EXPECT_EQ(Make("amq")->spec(), "amq:bits=3,p=0.5,norm=l2,bucket=8192");
}

// With 8 bits the least level at p=0.5 would be too small.
TEST(Amq, TakesTheBestRatioWhereHalvesDoNotFit) {
  for (const char* bits : {"2", "7"}) {
    EXPECT_EQ(Make(std::string("amq:bits=") + bits)->spec(),
              std::string("amq:bits=") + bits + ",p=0.5,norm=l2,bucket=8192");
  }
  EXPECT_EQ(Make("amq:bits=8")->spec(), "amq:bits=8,p=auto,norm=l2,bucket=8192");
  EXPECT_LT(*Make("amq:bits=8")->NmseBound(8192), .002);
  EXPECT_THAT(MakeCodec("amq:bits=8,p=0.5").status().message(),
              HasSubstr("p=0.5 is not valid; use another p"));
}

TEST(Zeroless, EqualCodecsHaveEqualSpecs) {
  for (const char* p : {".5", "0.50", "5e-1"}) {
    const std::string ratio = std::string("p=") + p;
    EXPECT_EQ(Make("zeroless:" + ratio)->spec(), Make("zeroless:p=0.5")->spec());
    EXPECT_EQ(Make("amq:" + ratio)->spec(), Make("amq")->spec());
  }
  EXPECT_EQ(Make("zeroless:levels=0.10/.3/6e-1/1.0")->spec(),
            "zeroless:bits=3,levels=0.1/0.3/0.6/1,norm=linf,bucket=512");
}

TEST(Zeroless, ErrorsNameTheCodecAndWhatIsValid) {
  const auto message = [](const char* spec) { return MakeCodec(spec).status().message(); };
  EXPECT_EQ(message("zeroless:norm=l1"),
            "codec 'zeroless': norm=l1 is not valid; use l2 or linf");
  EXPECT_EQ(message("zeroless:levels=0.5/1"),
            "codec 'zeroless': levels=0.5/1 is not valid; use exp, uniform, or a list of 4 "
            "levels above 0 that ends with 1, such as 0.1/0.3/0.6/1");
  EXPECT_EQ(message("zeroless:levels=uniform,p=0.5"),
            "codec 'zeroless': p goes with levels=exp only");
  EXPECT_EQ(message("amq:p=1"),
            "codec 'amq': p=1 is not valid; use auto or a number between 0 and 1");
  EXPECT_NE(message("zeroless:bits=8,p=0.1").find("another p"), std::string::npos);
}

}  // namespace
}  // namespace elastiquant
