#include "elastiquant/kernels/sparse/select.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "elastiquant/kernels/each_target_test.h"
#include "elastiquant/kernels/kernel_testing.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

constexpr size_t kSelectLengths[] = {0, 1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 65, 1000};
constexpr float kOdd[] = {0.0f, -0.0f, 0x1p-149f, -0x1p-126f, 1.0f, -1.0f, 3e38f, -1e-3f};

std::vector<float> OddValues(size_t n) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = kOdd[RandomBits({3, 4}, static_cast<uint32_t>(i)) % 8];
  return v;
}

TEST(Select, MagnitudesAreCountedAndCollectedOnEveryTarget) {
  ForEachTarget([] {
    for (size_t n : kSelectLengths) {
      const std::vector<float> v = OddValues(n);
      for (float threshold : {0.0f, 0x1p-149f, 1e-3f, 1.0f, 3e38f}) {
        const uint32_t least = std::bit_cast<uint32_t>(threshold);
        std::vector<uint32_t> expected;
        for (size_t i = 0; i < n; ++i) {
          if (std::abs(v[i]) >= threshold) expected.push_back(9 + static_cast<uint32_t>(i));
        }
        EXPECT_EQ(CountMagnitudes(v.data(), n, least), expected.size())
            << n << " " << threshold;
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
    for (size_t n : kSelectLengths) {
      for (uint32_t limit : {0u, 1u << 24, 1u << 31, ~0u}) {
        constexpr uint32_t kFirst = 0xFFFFFE00u - 1000;  // near the end of all coordinates
        std::vector<uint32_t> expected;
        for (uint32_t i = kFirst; i < kFirst + n; ++i) {
          if (RandomBits(kTestKeys, i) < limit) expected.push_back(i);
        }
        std::vector<uint32_t> positions(expected.size());
        EXPECT_EQ(CollectDrawn(kTestKeys, kFirst, n, limit, positions.data()), expected.size());
        EXPECT_EQ(positions, expected) << n << " " << limit;
      }
    }
  });
}

TEST(Select, LikelyOnesAreThoseOfTheFormulaOnEveryTarget) {
  ForEachTarget([] {
    for (size_t n : kSelectLengths) {
      std::vector<float> v = OddValues(n);
      for (size_t i = 0; i < n; i += 2) v[i] = 1e-4f * static_cast<float>(i);
      for (float magnitude : {0x1p-149f, 0x1p-120f, 0.02f, 1.0f, 3e38f}) {
        std::vector<uint32_t> expected;
        size_t wavering = 0;  // so close to the limit that its rounding decides
        for (uint32_t i = 0; i < n; ++i) {
          const double p = std::abs(static_cast<double>(v[i])) / magnitude;
          const double u = (RandomBits(kTestKeys, 9 + i) >> 1) * 0x1p-31;
          if (p >= 1 || u < p) expected.push_back(9 + i);
          wavering += p < 1 && std::abs(u - p) < 1e-6 * p + 0x1p-30 ? 1 : 0;
        }
        ASSERT_EQ(wavering, 0u) << "choose other keys";
        std::vector<uint32_t> positions(n);
        positions.resize(CollectLikely(v.data(), n, magnitude, kTestKeys, 9, positions.data()));
        EXPECT_EQ(positions, expected) << n << " " << magnitude;
      }
    }
  });
}

TEST(Select, LikelyOnesAreAsLikelyAsTheyShouldBe) {
  const std::vector<float> v(1 << 16, 0.3f);
  std::vector<uint32_t> positions(v.size());
  const size_t kept = CollectLikely(v.data(), v.size(), 1.2f, kTestKeys, 0, positions.data());
  EXPECT_NEAR(static_cast<double>(kept), 0x1p14, 5 * 111);  // standard deviation 111
}

TEST(Select, NonFiniteValuesStandOut) {
  for (float odd : {std::numeric_limits<float>::infinity(), -std::nanf("")}) {
    std::vector<float> v(100, 1.0f);
    v[70] = odd;
    EXPECT_EQ(CountMagnitudes(v.data(), v.size(), kNonFiniteBits), 1u);
  }
}

}  // namespace
}  // namespace elastiquant
