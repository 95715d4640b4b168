#include "elastiquant/kernels/sparse/largest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/each_target_test.h"
#include "elastiquant/kernels/kernel_testing.h"

namespace elastiquant {
namespace {

uint32_t KeyBits(float v) { return std::bit_cast<uint32_t>(v) & 0x7FFFFFFFu; }

// By sorting all of them.
std::vector<uint16_t> LargestByHand(const FloatRows& in, size_t keep) {
  std::vector<uint16_t> order(in.size());
  std::iota(order.begin(), order.end(), uint16_t{0});
  std::ranges::stable_sort(
      order, [&](uint16_t a, uint16_t b) { return KeyBits(in.At(a)) > KeyBits(in.At(b)); });
  order.resize(std::min(keep, order.size()));
  std::erase_if(order, [&](uint16_t i) { return KeyBits(in.At(i)) == 0; });
  std::ranges::sort(order);
  return order;
}

// Room for no more: a sanitizer sees a write behind the last.
std::vector<uint16_t> Largest(const FloatRows& in, size_t keep, uint32_t guess) {
  std::vector<uint32_t> scratch(LargestScratch(in.size()));
  std::vector<uint16_t> positions(std::min(keep, in.size()));
  positions.resize(SelectLargest(in, keep, &guess, scratch.data(), positions.data()));
  EXPECT_GE(guess, 1u);
  return positions;
}

// Runs whose k-th largest magnitude is hard to find.
std::vector<std::vector<float>> HardRuns(size_t n) {
  std::vector<float> random(n), ties(n), few(n), odd(n), falling(n);
  constexpr float kOdd[] = {0,      -0.0f, 0x1p-149f, -0x1p-126f,     1,
                            -1e-3f, 3e38f, kMaxFloat, -kInfiniteFloat};
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t bits = RandomBits(kTestKeys, i);
    random[i] = UniformFloat(bits) - 0.5f;
    ties[i] = static_cast<float>(static_cast<int>(bits % 5) - 2);
    few[i] = bits % 61 == 0 ? 0x1p-149f * static_cast<float>(bits % 13) : -0.0f;
    odd[i] = kOdd[bits % std::size(kOdd)];
    falling[i] = 1 / static_cast<float>(i + 1);
  }
  std::vector<float> nan = random;
  if (n > 3) nan[n / 2] = -std::nanf(""), nan[n / 3] = kInfiniteFloat;
  return {random,
          ties,
          few,
          odd,
          falling,
          nan,
          std::vector<float>(n, -2.0f),
          std::vector<float>(n, 0.0f)};
}

TEST(Largest, AreThoseOfASortWhateverTheGuessOnEveryTarget) {
  ForEachTarget([] {
    for (size_t n : {1u, 2u, 15u, 16u, 17u, 33u, 64u, 100u, 1000u, 4095u, 4096u}) {
      for (const std::vector<float>& run : HardRuns(n)) {
        const FloatRows in{run.data(), 1, n, 0};
        for (size_t keep : {size_t{1}, n / 64 + 1, n / 2 + 1, n, n + 5}) {
          const auto expected = LargestByHand(in, keep);
          for (uint32_t guess : {0u, 1u, 0x3E000000u, 0x3EF00000u, 0x3FFFFFFFu, 0x7FFFFFFFu}) {
            ASSERT_EQ(Largest(in, keep, guess), expected) << n << " " << keep << " " << guess;
          }
        }
      }
    }
  });
}

TEST(Largest, RowsApartAreARunOnEveryTarget) {
  ForEachTarget([] {
    for (const auto& [rows, width, stride] :
         {std::array<size_t, 3>{64, 64, 64}, {64, 64, 192}, {5, 3, 7}, {2, 40, 41}}) {
      for (const std::vector<float>& values : HardRuns((rows - 1) * stride + width)) {
        const FloatRows in{values.data(), rows, width, stride};
        for (size_t keep : {size_t{1}, size_t{64}, in.size()}) {
          ASSERT_EQ(Largest(in, keep, 0x3E000000u), LargestByHand(in, keep)) << rows;
        }
      }
    }
  });
}

TEST(Largest, TheGuessForASimilarRunLetsAllThroughThatAreKeptButNotMany) {
  std::vector<float> run(4096);
  for (uint32_t i = 0; i < 4096; ++i) {
    float sum = -6;
    for (uint32_t j = 0; j < 12; ++j) sum += UniformFloat(RandomBits(kTestKeys, 12 * i + j));
    run[i] = sum;
  }
  std::vector<uint32_t> scratch(LargestScratch(run.size()));
  std::vector<uint16_t> positions(64);
  uint32_t guess = 1;
  ASSERT_EQ(
      SelectLargest({run.data(), 1, 4096, 0}, 64, &guess, scratch.data(), positions.data()),
      64u);
  const auto passed = std::ranges::count_if(run, [&](float v) { return KeyBits(v) >= guess; });
  EXPECT_GT(passed, 64);
  EXPECT_LT(passed, 160);
}

}  // namespace
}  // namespace elastiquant
