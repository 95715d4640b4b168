#include "elastiquant/kernels/digits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "elastiquant/kernels/each_target_test.h"

namespace elastiquant {
namespace {

std::vector<int> Bases() {
  std::vector<int> bases;
  for (int base = 2; base <= 256; ++base) {
    if (IsDigitBase(base)) bases.push_back(base);
  }
  return bases;
}

std::vector<uint8_t> Digits(size_t n, int base) {
  std::mt19937 generator(static_cast<unsigned>(n));
  std::vector<uint8_t> digits(n);
  for (uint8_t& d : digits) {
    d = static_cast<uint8_t>(generator() % static_cast<unsigned>(base));
  }
  return digits;
}

TEST(Digits, ComeBack) {
  ForEachTarget([] {
    for (int base : Bases()) {
      for (size_t n : {0u, 1u, 2u, 4u, 5u, 6u, 10u, 11u, 12u, 63u, 64u, 65u, 1000u, 4096u}) {
        const std::vector<uint8_t> digits = Digits(n, base);
        // Exact sizes, so that a sanitizer sees what goes beyond.
        std::vector<uint8_t> packed(PackedDigitBytes(n, base)), back(n, 0xFF);
        ASSERT_TRUE(PackDigits(digits.data(), n, base, packed.data())) << base << " " << n;
        ASSERT_TRUE(UnpackDigits(packed.data(), n, base, back.data())) << base << " " << n;
        ASSERT_EQ(back, digits) << base << " " << n;
      }
    }
  });
}

TEST(Digits, TakeAtMostTwoPercentMoreThanTheirEntropy) {
  for (int base : Bases()) {
    const size_t n = 44 * 5 * 1000;
    const double bits = static_cast<double>(8 * PackedDigitBytes(n, base)) / n;
    EXPECT_GE(bits, std::log2(base)) << base;
    EXPECT_LE(bits, 1.02 * std::log2(base) + 50.0 / n) << base;
  }
}

TEST(Digits, StandLowFirst) {
  const uint8_t threes[] = {1, 2, 0, 0, 1, 2};  // 1 + 2*3 + 81, then 2
  uint8_t packed[2];
  ASSERT_TRUE(PackDigits(threes, 6, 3, packed));
  EXPECT_EQ(packed[0], 88);
  EXPECT_EQ(packed[1], 2);
  const uint8_t fives[] = {4, 4, 4, 1};  // 124 in 7 bits, then 1
  ASSERT_TRUE(PackDigits(fives, 4, 5, packed));
  EXPECT_EQ(packed[0], 124 | 1 << 7);
  EXPECT_EQ(packed[1], 0);
}

TEST(Digits, TooLargeOnesAreNoticed) {
  for (int base : Bases()) {
    if (base == 256) continue;
    std::vector<uint8_t> digits = Digits(23, base), packed(PackedDigitBytes(23, base));
    digits[17] = static_cast<uint8_t>(base);
    EXPECT_FALSE(PackDigits(digits.data(), digits.size(), base, packed.data())) << base;
  }
}

TEST(Digits, BadStreamsAreNoticed) {
  uint8_t digits[8];
  const uint8_t group_too_large[] = {243};
  EXPECT_FALSE(UnpackDigits(group_too_large, 5, 3, digits));
  const uint8_t filling_digit[] = {81};
  EXPECT_TRUE(UnpackDigits(filling_digit, 5, 3, digits));
  EXPECT_FALSE(UnpackDigits(filling_digit, 4, 3, digits));
  const uint8_t filling_bit[] = {0x84};
  EXPECT_FALSE(UnpackDigits(filling_bit, 3, 5, digits));
  EXPECT_FALSE(UnpackDigits(filling_bit, 7, 2, digits));
  EXPECT_TRUE(UnpackDigits(filling_bit, 8, 2, digits));
}

}  // namespace
}  // namespace elastiquant
