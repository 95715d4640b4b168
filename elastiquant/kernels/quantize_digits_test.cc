#include "elastiquant/kernels/quantize_digits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "elastiquant/kernels/dequantize.h"
#include "elastiquant/kernels/each_target_test.h"
#include "elastiquant/kernels/kernel_testing.h"

namespace elastiquant {
namespace {

constexpr size_t kLengths[] = {0, 1, 3, 4, 5, 15, 16, 17, 31, 63, 64, 65, 127, 200, 513};

std::vector<float> Gaussian(size_t n, float scale = 1, unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = scale * normal(generator);
  return v;
}

// The definition, in doubles.
int Expected(const DigitLevels& table, double y, uint32_t random) {
  y = std::clamp<double>(y, table.level[0], table.level[table.count - 1]);
  size_t j = 0;
  while (j + 2 < table.count && y >= table.level[j + 1]) ++j;
  const double width = table.level[j + 1] - table.level[j];
  const double fraction = width > 0 ? (y - table.level[j]) / width : 0;
  // What is nearer to the border than rounding can tell apart is -1.
  const double u = (random >> 2) * 0x1p-30;
  if (std::abs(u - fraction) < 1e-6) return -1;
  return static_cast<int>(j) + (u < fraction ? 1 : 0);
}

TEST(QuantizeDigits, RoundsToTheNeighboursAlikeOnEveryTarget) {
  for (float scale : {1.0f, 1e-42f, 1e-30f, 1e37f}) {
    for (size_t count : {2, 3, 5, 9, 15, 16, 17, 32, 33, 255, 256}) {
      std::vector<float> levels = Gaussian(count, scale, 3);
      std::ranges::sort(levels);
      DigitLevels table;
      FillDigitLevels(levels, &table);
      const std::vector<float> v = Gaussian(600, 1.5f * scale);
      for (size_t n : kLengths) {
        std::vector<uint8_t> first;
        ForEachTarget([&] {
          std::vector<uint8_t> digits(n + 1, 0xAA);
          QuantizeDigits(v.data(), n, kTestRun, table, table.pre, 1, digits.data());
          EXPECT_EQ(digits[n], 0xAA);
          if (first.empty()) first = digits;
          ASSERT_EQ(digits, first) << count << " levels, length " << n;
        });
        for (size_t i = 0; i < n; ++i) {
          const uint32_t random =
              RandomBits(kTestRun.keys, kTestRun.first + static_cast<uint32_t>(i));
          const int expected = Expected(
              table, static_cast<double>(v[i]) * static_cast<double>(table.pre), random);
          if (expected >= 0) {
            ASSERT_EQ(first[i], expected) << count << " levels, coordinate " << i;
          }
        }
      }
    }
  }
}

TEST(QuantizeDigits, LevelsThatAreTheSameAreNoTrouble) {
  DigitLevels table;
  FillDigitLevels(std::vector<float>{-1, 0, 0, 0, 1, 1}, &table);
  const std::vector<float> v{-2, -1, 0, 0.999999f, 1, 3};
  std::vector<uint8_t> digits(v.size());
  QuantizeDigits(v.data(), v.size(), kTestRun, table, 1, 1, digits.data());
  constexpr float kValue[] = {-1, 0, 0, 0, 1, 1};
  const std::vector<float> expected{-1, -1, 0, 1, 1, 1};
  for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(kValue[digits[i]], expected[i]) << i;
}

TEST(QuantizeSides, ComparesWithTheThreshold) {
  const std::vector<float> v{-1, -0.0f, 0,  1e-45f, 2, -1e-45f, 0.5f, 0.49999997f, 3,
                             4,  5,     -6, 7,      8, 0.5f,    9,    10,          -11};
  ForEachTarget([&] {
    for (float threshold : {0.0f, 0.5f}) {
      std::vector<uint8_t> digits(v.size());
      QuantizeSides(v.data(), v.size(), threshold, digits.data());
      for (size_t i = 0; i < v.size(); ++i)
        EXPECT_EQ(digits[i], v[i] >= threshold ? 1 : 0) << i;
    }
  });
}

TEST(QuantizeNearest, TakesTheNearestOfTheGrid) {
  for (float range : {1.0f, 1e-44f, 3e-20f, 3e38f}) {
    for (int top : {1, 3, 7, 15, 255}) {
      std::vector<float> v = Gaussian(513, range / 3);
      for (float& x : v) x = std::clamp(x, -range, range);
      v[0] = range;
      v[1] = -range;
      std::vector<uint8_t> first;
      ForEachTarget([&] {
        std::vector<uint8_t> digits(v.size());
        QuantizeNearest(v.data(), v.size(), range, top, digits.data());
        if (first.empty()) first = digits;
        ASSERT_EQ(digits, first) << "top " << top;
      });
      EXPECT_EQ(first[0], top);
      EXPECT_EQ(first[1], 0);
      const double step = 2.0 * range / top;
      for (size_t i = 0; i < v.size(); ++i) {
        const double value = first[i] * step - range;
        ASSERT_LE(std::abs(value - v[i]), step * (0.5 + 0x1p-14))
            << "top " << top << ", " << v[i];
      }
    }
  }
}

TEST(DequantizeDigits, ValuesAreRoundedTheSameOnEveryTarget) {
  alignas(64) float table[256];
  const std::vector<float> levels = Gaussian(256, 1, 9);
  std::ranges::copy(levels, table);
  const float scale = 1.7f, weight = -0.3f;
  ForEachTarget([&] {
    for (size_t base : {2, 3, 8, 9, 16, 17, 256}) {
      for (size_t n : kLengths) {
        std::vector<uint8_t> digits(n);
        for (size_t i = 0; i < n; ++i) {
          digits[i] = static_cast<uint8_t>(RandomBits({5, 6}, static_cast<uint32_t>(i)) % base);
        }
        std::vector<float> out(n + 1, 7.0f), sum(n + 1, 7.0f);
        DequantizeDigits(digits.data(), n, table, base, scale, {}, out.data());
        DequantizeDigits(digits.data(), n, table, base, scale, {true, weight}, sum.data());
        for (size_t i = 0; i < n; ++i) {
          const float value = scale * table[digits[i]];
          ASSERT_EQ(out[i], value) << base << ", " << i << " of " << n;
          const float product = weight * value;
          ASSERT_EQ(sum[i], 7.0f + product);
        }
        EXPECT_EQ(out[n], 7.0f);
        EXPECT_EQ(sum[n], 7.0f);
      }
    }
  });
}

}  // namespace
}  // namespace elastiquant
