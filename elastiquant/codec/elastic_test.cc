#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic_test_util.h"

namespace elastiquant {
namespace {

// A key whose first `n` coordinates all have random fractions in [low, high).
StreamKey KeyWithFractions(size_t n, float low, float high) {
  for (uint64_t message = 0;; ++message) {
    const StreamKey key = DeriveKey(0, 0, 0, message);
    bool all = true;
    for (uint32_t i = 0; i < n && all; ++i) {
      const float u = UniformFloat(RandomBits(MakeLaneKeys(key), i));
      all = u >= low && u < high;
    }
    if (all) return key;
  }
}

const std::vector<float> kU1 = {3, -4, 0, 12};

// Two levels between 0 and 1 at p = 1/2 with the L2 norm 13; u = .5 for all.
TEST(Elastic, WorkedExampleOfExponentialLevels) {
  const auto codec = Make("elastic:bits=3,p=0.5,norm=l2");
  const auto q = Decode(Encode(*codec, kU1, KeyWithFractions(4, .45f, .55f)), 4);
  EXPECT_EQ(q, (std::vector<float>{3.25f, -3.25f, 0, 13}));
}

TEST(Elastic, WorkedExampleOfListedLevels) {
  const StreamKey key = KeyWithFractions(4, .28f, .32f);
  const std::string levels = "elastic:levels=0.25/0.5/0.75/1,bucket=4,norm=";
  EXPECT_EQ(Decode(Encode(*Make(levels + "l2"), kU1, key), 4),
            (std::vector<float>{3.25f, -3.25f, 0, 13}));
  EXPECT_EQ(Decode(Encode(*Make(levels + "linf"), kU1, key), 4),
            (std::vector<float>{3, -6, 0, 12}));
}

TEST(Elastic, GaussianErrorIsAsPublished) {
  const std::vector<float> v = Gaussian(size_t{1} << 18);
  const struct {
    const char* spec;
    double nmse;
  } cases[] = {
      {"elastic:levels=uniform", .0362},
      {"elastic:p=0.69", .029},
      {"elastic:levels=uniform,bucket=8192", .0546},
      {"elastic:p=0.67,bucket=8192", .033},
      {"elastic:p=0.5,norm=l2,bucket=512", .087},
      {"elastic:p=0.5,norm=l2,bucket=8192", .335},
      {"elastic:bits=3,levels=uniform", .196},
      {"elastic:bits=8,levels=exp,p=0.5,norm=l2,bucket=8192", .082},
  };
  for (const auto& c : cases) {
    const auto q = Decode(Encode(*Make(c.spec), v, DeriveKey(1, 2, 3, 4)), v.size());
    EXPECT_NEAR(Nmse(v, q), c.nmse, .03 * c.nmse) << c.spec;
  }
}

}  // namespace
}  // namespace elastiquant
