#include "elastiquant/kernels/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "elastiquant/kernels/each_target_test.h"

namespace elastiquant {
namespace {

TEST(Sort, GivesTheOrderOfTheStandardLibrary) {
  ForEachTarget([] {
    for (size_t n : {0u, 1u, 2u, 3u, 15u, 16u, 17u, 100u, 513u, 2048u, 40000u}) {
      std::mt19937 generator(static_cast<unsigned>(n));
      std::normal_distribution<float> normal;
      std::vector<float> v(n);
      for (float& x : v) x = normal(generator);
      for (size_t i = 0; i + 5 < n; i += 5) {
        v[i] = v[i + 1];  // equal ones
        v[i + 2] = i % 2 == 0 ? std::numeric_limits<float>::denorm_min()
                              : -std::numeric_limits<float>::max();
      }
      std::vector<float> expected = v;
      std::ranges::sort(expected);
      SortFloats(v.data(), n);
      ASSERT_EQ(v, expected) << n;
    }
  });
}

}  // namespace
}  // namespace elastiquant
