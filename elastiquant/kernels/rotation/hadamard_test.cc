#include "elastiquant/kernels/rotation/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/each_target_test.h"

namespace elastiquant {
namespace {

// The definition in the header, in place.
void Butterflies(std::vector<float>& v) {
  for (size_t h = 1; h < v.size(); h *= 2) {
    for (size_t i = 0; i < v.size(); ++i) {
      if (i & h) continue;
      const float a = v[i], b = v[i + h];
      v[i] = a + b;
      v[i + h] = a - b;
    }
  }
}

std::vector<float> RoughValues(size_t n) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t random = RandomBits({1, 2}, static_cast<uint32_t>(i));
    v[i] = (UniformFloat(random) - 0.5f) * (random % 7 == 0 ? 1e6f : 1e-3f);
  }
  return v;
}

TEST(Hadamard, EveryTargetHasTheBitsOfTheDefinition) {
  ForEachTarget([] {
    for (size_t n = 1; n <= 8192; n *= 2) {
      std::vector<float> expected = RoughValues(n), v = expected, scratch(n);
      Butterflies(expected);
      HadamardTransform(v.data(), n, scratch.data());
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(v[i]), std::bit_cast<uint32_t>(expected[i]))
            << i << " of " << n;
      }
    }
  });
}

TEST(Hadamard, IsSylvestersMatrix) {
  constexpr size_t n = 64;
  for (size_t j = 0; j < n; ++j) {
    std::vector<float> v(n, 0.0f), scratch(n);
    v[j] = 1;
    HadamardTransform(v.data(), n, scratch.data());
    for (size_t i = 0; i < n; ++i) {
      EXPECT_EQ(v[i], std::popcount(i & j) % 2 == 0 ? 1.0f : -1.0f);
    }
  }
}

TEST(Hadamard, TwiceMultipliesByItsLength) {
  std::vector<float> v(512), scratch(512);
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i) - 100;  // sums are exact
  HadamardTransform(v.data(), v.size(), scratch.data());
  HadamardTransform(v.data(), v.size(), scratch.data());
  for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(v[i], 512 * (static_cast<float>(i) - 100));
}

}  // namespace
}  // namespace elastiquant
