#include "elastiquant/kernels/natural.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "elastiquant/kernels/each_target_test.h"
#include "elastiquant/kernels/kernel_testing.h"

namespace elastiquant {
namespace {

// Every exponent, both signs, denormals.
std::vector<float> Values() {
  std::vector<float> v{0, -0.0f, kNaturalMax, -kNaturalMax, 0x1p-149f, -0x1.8p-127f};
  for (uint32_t i = 0; i < 600; ++i) {
    const uint32_t bits = RandomBits({3, 4}, i);
    const float x = std::bit_cast<float>(bits);
    v.push_back(std::abs(x) <= kNaturalMax ? x : 1.5f);
  }
  return v;
}

TEST(Natural, RoundsToANeighbouringPowerAlikeOnEveryTarget) {
  const std::vector<float> v = Values();
  ForEachTarget([&] {
    for (size_t n : {size_t{0}, size_t{1}, size_t{17}, v.size()}) {
      std::vector<uint8_t> exponents(n), signs(n);
      ASSERT_EQ(SplitNatural(v.data(), n, kTestRun, exponents.data(), signs.data()), n);
      std::vector<float> out(n);
      ASSERT_TRUE(JoinNatural(exponents.data(), signs.data(), n, {}, out.data()));
      std::vector<float> sum(n, 7.0f);
      ASSERT_TRUE(JoinNatural(exponents.data(), signs.data(), n, {true, -0.3f}, sum.data()));
      for (uint32_t i = 0; i < n; ++i) {
        // By the mantissa as a fraction m / 2^23 above the lower power.
        const uint32_t bits = std::bit_cast<uint32_t>(v[i]);
        const uint32_t m = bits & 0x7FFFFF, e = bits >> 23 & 255;
        const uint32_t u = RandomBits(kTestRun.keys, kTestRun.first + i) >> 9;
        const uint32_t rounded = (u + m) >= (1u << 23) ? e + 1 : e;
        const float power = std::bit_cast<float>(rounded << 23);
        ASSERT_EQ(out[i], std::signbit(v[i]) ? -power : power) << v[i];
        const float product = -0.3f * out[i];
        ASSERT_EQ(sum[i], 7.0f + product);
      }
    }
  });
}

TEST(Natural, TellsTheFirstValueThatItCannotHold) {
  const float infinity = std::numeric_limits<float>::infinity();
  ForEachTarget([&] {
    for (float bad : {infinity, -infinity, std::nanf(""), 0x1.000002p127f}) {
      std::vector<float> v(50, 1.0f);
      v[33] = v[41] = bad;
      std::vector<uint8_t> exponents(50), signs(50);
      EXPECT_EQ(SplitNatural(v.data(), 50, kTestRun, exponents.data(), signs.data()), 33u);
    }
    const uint8_t exponents[] = {3, 255}, signs[] = {0, 1};
    float out[2];
    EXPECT_FALSE(JoinNatural(exponents, signs, 2, {}, out));
    EXPECT_TRUE(JoinNatural(exponents, signs, 1, {}, out));
  });
}

}  // namespace
}  // namespace elastiquant
