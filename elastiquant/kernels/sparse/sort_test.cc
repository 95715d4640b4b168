#include "elastiquant/kernels/sparse/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "elastiquant/kernels/each_target_test.h"

namespace elastiquant {
namespace {

TEST(Sort, GivesTheOrderOfTheStandardLibrary) {
  ForEachTarget([] {
    for (size_t n :
         {0u, 1u, 2u, 3u, 15u, 16u, 17u, 100u, 65u, 513u, 2048u, 4096u, 4097u, 40000u}) {
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

TEST(Sort, ManyEqualOnesStayInOrder) {
  ForEachTarget([] {
    for (int round = 0; round < 500; ++round) {
      std::mt19937 generator(static_cast<unsigned>(round));
      std::vector<float> v(100 + static_cast<size_t>(round));
      for (float& x : v)
        x = std::ldexp(static_cast<float>(generator() % 9) - 4, round % 40 - 60);
      std::vector<float> expected = v;
      std::ranges::sort(expected);
      SortFloats(v.data(), v.size());
      ASSERT_EQ(v, expected) << round;
    }
  });
}

TEST(Sort, NegativeZerosComeFirst) {
  ForEachTarget([] {
    for (size_t n : {2u, 40u, 700u, 5000u}) {
      std::vector<float> v(n);
      for (size_t i = 0; i < n; ++i) v[i] = i % 3 == 0 ? -0.0f : static_cast<float>(i % 5 == 0);
      const auto is_negative = [](float x) { return std::signbit(x); };
      const auto negative = std::ranges::count_if(v, is_negative);
      SortFloats(v.data(), n);
      EXPECT_TRUE(std::ranges::is_sorted(v));
      EXPECT_TRUE(std::all_of(v.begin(), v.begin() + negative, is_negative)) << n;
      EXPECT_TRUE(std::none_of(v.begin() + negative, v.end(), is_negative)) << n;
    }
  });
}

}  // namespace
}  // namespace elastiquant
