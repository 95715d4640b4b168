#include "elastiquant/kernels/weighted_sum.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/each_target_test.h"
#include "elastiquant/kernels/kernel_testing.h"

namespace elastiquant {
namespace {

void ExpectTheSum(const std::vector<std::vector<float>>& values, double scale) {
  const size_t n = values[0].size();
  std::vector<WeightedVector> inputs;
  for (const auto& v : values) {
    inputs.push_back({0.3 - static_cast<double>(inputs.size()), v.data()});
  }
  std::vector<float> out(n + 1, 7);
  WeightedSum(inputs, scale, n, out.data());
  EXPECT_EQ(out[n], 7) << n;
  for (size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (const auto& [weight, v] : inputs) sum += weight * static_cast<double>(v[i]);
    const auto expected = static_cast<float>(scale * sum);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(out[i])) << n << " at " << i;
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected)) << n;
    }
  }
}

TEST(WeightedSum, EveryTargetRoundsTheSameSum) {
  ForEachTarget([] {
    for (size_t n : {0, 1, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 2048, 2053}) {
      ExpectTheSum({ValuesOfAllSizes(n, 1)}, 1);
      ExpectTheSum({ValuesOfAllSizes(n, 1), ValuesOfAllSizes(n, 2), ValuesOfAllSizes(n, 3)},
                   0.37);
    }
  });
}

TEST(WeightedSum, ExtremesAreRoundedAsByTheScalar) {
  const float denormal = std::numeric_limits<float>::denorm_min();
  const std::vector<float> odd = {0.0f,          -0.0f,      denormal,        -denormal,
                                  kMaxFloat,     -kMaxFloat, kInfiniteFloat,  -kInfiniteFloat,
                                  std::nanf(""), 1e-45f * 3, 1.17549435e-38f, 1};
  std::vector<float> v, w;
  for (size_t i = 0; i < 144; ++i) {
    v.push_back(odd[i % odd.size()]);
    w.push_back(odd[i / odd.size()]);
  }
  ForEachTarget([&] {
    for (double scale : {0.0, 1.0, 0.25, 3.0}) ExpectTheSum({v, w}, scale);
  });
}

TEST(WeightedSum, OfNothingIsZeroAndOfAnInputMayReplaceIt) {
  ForEachTarget([] {
    std::vector<float> v = ValuesOfAllSizes(100, 1);
    const std::vector<float> before = v;
    const WeightedVector itself{2, v.data()};
    WeightedSum({&itself, 1}, 0.5, v.size(), v.data());
    EXPECT_EQ(v, before);
    WeightedSum({}, 1, v.size(), v.data());
    EXPECT_EQ(v, std::vector<float>(100));
  });
}

}  // namespace
}  // namespace elastiquant
