#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "elastiquant/codec/elastic_test_util.h"

namespace elastiquant {
namespace {

void ExpectSameFrames(const std::string& preset, const std::string& elastic) {
  const std::vector<float> v = Gaussian(1300);
  EXPECT_EQ(Encode(*Make(preset), v, {7}), Encode(*Make(elastic), v, {7})) << preset;
}

TEST(Qsgd, PresetsAreElasticsWithFixedKeys) {
  ExpectSameFrames("qsgd", "elastic:levels=uniform,norm=l2");
  ExpectSameFrames("qsgdv", "elastic:levels=uniform,norm=linf");
  ExpectSameFrames("nuqsgd", "elastic:p=0.5,norm=l2");
  ExpectSameFrames("qsgd:bits=3,bucket=100|elias",
                   "elastic:levels=uniform,norm=l2,bits=3,bucket=100|elias");
  ExpectSameFrames("nuqsgd:bits=5,bucket=0|rans", "elastic:p=0.5,norm=l2,bits=5,bucket=0|rans");
}

TEST(Qsgd, SpecsKeepTheFieldsName) {
  EXPECT_EQ(Make("qsgd")->spec(), "qsgd:bits=4,bucket=512");
  EXPECT_EQ(Make("qsgdv|rans")->spec(), "qsgdv:bits=4,bucket=512|rans");
  EXPECT_EQ(Make("nuqsgd:bucket=8192|elias")->spec(), "nuqsgd:bits=4,bucket=8192|elias");
}

TEST(Qsgd, ErrorsNameThePreset) {
  const auto message = [](const char* spec) { return MakeCodec(spec).status().message(); };
  EXPECT_EQ(message("qsgd:bits=9"), "codec 'qsgd': bits=9 is not valid; use 2 to 8");
  EXPECT_EQ(message("nuqsgd|rans|elias"),
            "codec 'nuqsgd': it takes one modifier, |rans or |elias, not 2");
  EXPECT_EQ(message("qsgdv:norm=l1"), "codec 'qsgdv' has no key 'norm'; valid: bits, bucket");
}

// d / (4 s^2) of uniform levels, or the bound for any levels where that is less; Theorem 4 of
// NUQSGD at d = 512 < 2^(2s+2).
TEST(Qsgd, BoundsAreThePublishedOnes) {
  EXPECT_NEAR(*Make("qsgd:bits=8")->NmseBound(5000), 512.0 / (4 * 127 * 127), 1e-6);
  EXPECT_NEAR(*Make("qsgd")->NmseBound(5000), std::sqrt(512) / 7 - 1 + .125, 1e-6);
  EXPECT_NEAR(*Make("nuqsgd")->NmseBound(5000), .125 + 512 * 0x1p-14, 1e-9);
}

TEST(Qsgd, GaussianErrorIsAsPublished) {
  const std::vector<float> v = Gaussian(size_t{1} << 18);
  const struct {
    const char* spec;
    double nmse;
  } cases[] = {
      {"qsgd:bits=3", 5.0},
      {"qsgd:bits=3,bucket=8192", 23},
      {"qsgd", 1.58},
      {"qsgd:bucket=8192", 9.3},
      {"qsgdv:bits=3", .196},
      {"qsgdv", .0362},
      {"nuqsgd:bits=3", 3.5},
      {"nuqsgd:bits=3,bucket=8192", 17},
      {"nuqsgd", .087},
      {"nuqsgd:bucket=8192", .335},
      {"qsgdv:bits=3,bucket=8192", .297},
  };
  for (const auto& c : cases) {
    const auto q = Decode(Encode(*Make(c.spec), v, DeriveKey(1, 2, 3, 4)), v.size());
    EXPECT_NEAR(Nmse(v, q), c.nmse, .03 * c.nmse) << c.spec;
  }
}

}  // namespace
}  // namespace elastiquant
