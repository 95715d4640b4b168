#include "elastiquant/kernels/norms.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/each_target_test.h"
#include "elastiquant/kernels/kernel_testing.h"

namespace elastiquant {
namespace {

constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

std::vector<size_t> NormLengths() {
  std::vector<size_t> lengths;
  for (size_t n = 0; n <= 140; ++n) lengths.push_back(n);
  for (size_t n : {511, 512, 513, 4095, 32768, 32771}) lengths.push_back(n);
  return lengths;
}

// The definition: lane i mod 16, then a tree. `inputs` are of the same length.
template <typename Term, typename... Inputs>
double SumInLanes(Term term, const std::vector<float>& v, const Inputs&... inputs) {
  double lanes[16] = {};
  for (size_t i = 0; i < v.size(); ++i) {
    lanes[i % 16] += term(static_cast<double>(v[i]), static_cast<double>(inputs[i])...);
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

TEST(Norms, EveryTargetSumsInTheSameOrder) {
  ForEachTarget([] {
    for (size_t n : NormLengths()) {
      const std::vector<float> v = ValuesOfAllSizes(n);
      EXPECT_EQ(SumAbs(v.data(), n), SumInLanes([](double x) { return std::fabs(x); }, v)) << n;
      EXPECT_EQ(SumSquares(v.data(), n), SumInLanes([](double x) { return x * x; }, v)) << n;
    }
  });
}

TEST(Norms, SumsAboveABoundAreThoseOfTheValuesThere) {
  ForEachTarget([] {
    for (size_t n : NormLengths()) {
      const std::vector<float> v = ValuesOfAllSizes(n);
      EXPECT_EQ(Sum(v.data(), n), SumInLanes([](double x) { return x; }, v)) << n;
      for (float t : {0.0f, -kMaxFloat, kMaxFloat, n == 0 ? 1.0f : v[n / 2]}) {
        const auto above = [t](double x) { return x >= static_cast<double>(t) ? x : 0; };
        EXPECT_EQ(SumAtLeast(v.data(), n, t), SumInLanes(above, v)) << n << " " << t;
        const auto below = [t](double x) { return std::abs(x) < t ? std::abs(x) : 0; };
        EXPECT_EQ(SumAbsBelow(v.data(), n, t), SumInLanes(below, v)) << n << " " << t;
        size_t count = 0;
        for (float x : v) count += x >= t ? 1 : 0;
        EXPECT_EQ(CountAtLeast(v.data(), n, t), count) << n << " " << t;
      }
    }
  });
}

TEST(Norms, ProductsOfTwoVectorsAreSummedInTheSameOrder) {
  ForEachTarget([] {
    for (size_t n : NormLengths()) {
      const std::vector<float> a = ValuesOfAllSizes(n);
      std::vector<float> b(a.rbegin(), a.rend());
      const auto product = [](double x, double y) { return x * y; };
      EXPECT_EQ(Dot(a, b), SumInLanes(product, a, b)) << n;
      for (double scale : {0.0, 1.0, static_cast<double>(0.3f)}) {
        const auto squared_error = [scale](double x, double y) {
          return (x - scale * y) * (x - scale * y);
        };
        EXPECT_EQ(SquaredDistance(a, b, scale), SumInLanes(squared_error, a, b)) << n;
      }
      EXPECT_EQ(SquaredDistance(a, b), SquaredDistance(b, a)) << n;
      EXPECT_EQ(SquaredDistance(a, a), 0) << n;
      if (n == 0) continue;
      b[n - 1] = std::nanf("");
      EXPECT_TRUE(std::isnan(Dot(a, b)) && std::isnan(SquaredDistance(a, b))) << n;
    }
  });
}

TEST(Norms, LargestIsFoundAtEveryPlace) {
  ForEachTarget([] {
    for (size_t n : NormLengths()) {
      std::vector<float> v(n, -0.0f);
      EXPECT_EQ(AbsMaxBits(v.data(), n), 0u);
      for (size_t i = 0; i < n; i += 1 + n / 64) {
        v[i] = -1 - static_cast<float>(i);
        EXPECT_EQ(std::bit_cast<float>(AbsMaxBits(v.data(), n)), -v[i]) << n << " at " << i;
      }
    }
  });
}

TEST(Norms, ExtremesStayExactAndNonFiniteOnesShow) {
  EXPECT_TRUE(AllFinite({}));
  ForEachTarget([] {
    for (size_t n : {1, 16, 17, 100}) {
      std::vector<float> v(n, kMaxFloat);
      EXPECT_EQ(AbsMaxBits(v.data(), n), std::bit_cast<uint32_t>(kMaxFloat));
      EXPECT_TRUE(AllFinite(v));
      EXPECT_TRUE(std::isfinite(SumSquares(v.data(), n)));
      v.assign(n, kDenormal);
      EXPECT_EQ(AbsMaxBits(v.data(), n), 1u);
      EXPECT_EQ(SumAbs(v.data(), n), static_cast<double>(n) * 0x1p-149);
      EXPECT_EQ(SumSquares(v.data(), n), static_cast<double>(n) * 0x1p-298);
      for (float poison : {kInfiniteFloat, -kInfiniteFloat, std::nanf("")}) {
        for (size_t at : {size_t{0}, n / 2, n - 1}) {
          v.assign(n, 1.0f);
          v[at] = poison;
          EXPECT_GE(AbsMaxBits(v.data(), n), kNonFiniteBits);
          EXPECT_FALSE(AllFinite(v));
          EXPECT_FALSE(std::isfinite(SumAbs(v.data(), n)));
          EXPECT_FALSE(std::isfinite(SumSquares(v.data(), n)));
        }
      }
    }
  });
}

TEST(Norms, PowersOfAWorkedExample) {
  const std::vector<float> v = {3, -4, 0, 12};
  EXPECT_DOUBLE_EQ(SumPowers(v.data(), 4, 1.0 / 12, 3), (27.0 + 64 + 1728) / 1728);
  EXPECT_EQ(SumSquares(v.data(), 4), 169);
  EXPECT_EQ(SumAbs(v.data(), 4), 19);
}

}  // namespace
}  // namespace elastiquant
