#include "elastiquant/kernels/select.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "elastiquant/kernels/each_target_test.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

constexpr LaneKeys kKeys{0x12345678, 0x9ABCDEF0};
constexpr size_t kLengths[] = {0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 65, 1000};
constexpr float kOdd[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-126f, 1.0f, -1.0f, 3e38f, -1e-3f};

std::vector<float> Values(size_t n) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = kOdd[RandomBits({3, 4}, static_cast<uint32_t>(i)) % 8];
  return v;
}

TEST(Select, MagnitudesAreCountedAndCollectedOnEveryTarget) {
  ForEachTarget([] {
    for (size_t n : kLengths) {
      const std::vector<float> v = Values(n);
      for (float threshold : {0.0f, 0x1p-149f, 1e-3f, 1.0f, 3e38f}) {
        const uint32_t least = std::bit_cast<uint32_t>(threshold);
        std::vector<uint32_t> expected;
        for (size_t i = 0; i < n; ++i) {
          if (std::abs(v[i]) >= threshold) expected.push_back(9 + static_cast<uint32_t>(i));
        }
        const MagnitudeCount counted = CountMagnitudes(v.data(), n, least);
        EXPECT_EQ(counted.count, expected.size()) << n << " " << threshold;
        EXPECT_EQ(counted.max_bits, AbsMaxBits(v.data(), n));
        // Room for no more: a sanitizer sees a write behind the last.
        std::vector<uint32_t> positions(expected.size());
        EXPECT_EQ(CollectMagnitudes(v.data(), n, least, 9, positions.data()), expected.size());
        EXPECT_EQ(positions, expected);
      }
    }
  });
}

TEST(Select, LotsAreThoseOfTheCoordinates) {
  ForEachTarget([] {
    for (size_t n : kLengths) {
      for (uint32_t limit : {0u, 1u << 24, 1u << 31, ~0u}) {
        constexpr uint32_t kFirst = 0xFFFFFE00u - 1000;  // near the end of all coordinates
        std::vector<uint32_t> expected;
        for (uint32_t i = kFirst; i < kFirst + n; ++i) {
          if (RandomBits(kKeys, i) < limit) expected.push_back(i);
        }
        EXPECT_EQ(CountDrawn(kKeys, kFirst, n, limit), expected.size());
        std::vector<uint32_t> positions(expected.size());
        EXPECT_EQ(CollectDrawn(kKeys, kFirst, n, limit, positions.data()), expected.size());
        EXPECT_EQ(positions, expected) << n << " " << limit;
      }
    }
  });
}

TEST(Select, NonFiniteValuesStandOut) {
  for (float odd : {std::numeric_limits<float>::infinity(), -std::nanf("")}) {
    std::vector<float> v(100, 1.0f);
    v[70] = odd;
    EXPECT_GE(CountMagnitudes(v.data(), v.size(), 0).max_bits, kNonFiniteBits);
  }
}

}  // namespace
}  // namespace elastiquant
