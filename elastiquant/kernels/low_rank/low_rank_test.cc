#include "elastiquant/kernels/low_rank/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/each_target_test.h"
#include "elastiquant/kernels/kernel_testing.h"

namespace elastiquant {
namespace {

constexpr int kPowers = 31;  // of two, that values lie between
constexpr size_t kWidths[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 129, 515};
constexpr size_t kHeights[] = {1, 2, 3, 4, 5, 8, 11};
constexpr size_t kRanks[] = {1, 2, 3, 5};

template <typename Body>
void ForEachShape(Body body) {
  for (const size_t n : kWidths) {
    for (const size_t rows : kHeights) {
      for (const size_t rank : kRanks) body(rows, n, rank);
    }
  }
}

double Exact(float a, float b) { return static_cast<double>(a) * static_cast<double>(b); }

// The definition: lane j mod 16, then a tree.
double DotInLanes(const float* a, const float* b, size_t n) {
  double lanes[16] = {};
  for (size_t j = 0; j < n; ++j) lanes[j % 16] += Exact(a[j], b[j]);
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

TEST(LowRankKernels, DotsAreSummedInOneOrderOnEveryTarget) {
  ForEachTarget([] {
    ForEachShape([](size_t rows, size_t n, size_t rank) {
      const size_t q_stride = n + 3, p_stride = rows + 2;
      const std::vector<float> m = ValuesOfAllSizes(rows * n, 1, kPowers),
                               q = ValuesOfAllSizes(rank * q_stride, 2, kPowers);
      std::vector<double> p(rank * p_stride, -7);
      DotRows(m.data(), rows, n, {q.data(), q_stride, rank}, p.data(), p_stride);
      for (size_t k = 0; k < rank; ++k) {
        for (size_t i = 0; i < rows; ++i) {
          ASSERT_EQ(p[k * p_stride + i], DotInLanes(&m[i * n], &q[k * q_stride], n));
        }
        ASSERT_EQ(p[k * p_stride + rows], -7) << "not its own";
      }
    });
  });
}

TEST(LowRankKernels, ScaledRowsAreAddedOneAfterTheOtherOnEveryTarget) {
  ForEachTarget([] {
    ForEachShape([](size_t rows, size_t n, size_t rank) {
      const size_t m_stride = n + 5, p_stride = rows + 1, sums_stride = n + 2;
      const std::vector<float> m = ValuesOfAllSizes(rows * m_stride, 3, kPowers),
                               p = ValuesOfAllSizes(rank * p_stride, 4, kPowers);
      std::vector<double> sums(rank * sums_stride, 0.125);
      std::vector<double> expected = sums;
      for (size_t i = 0; i < rows; ++i) {
        for (size_t k = 0; k < rank; ++k) {
          for (size_t j = 0; j < n; ++j) {
            expected[k * sums_stride + j] += Exact(m[i * m_stride + j], p[k * p_stride + i]);
          }
        }
      }
      AddScaledRows(m.data(), m_stride, rows, n, {p.data(), p_stride, rank}, sums.data(),
                    sums_stride);
      ASSERT_EQ(sums, expected) << rows << " x " << n << " rank " << rank;
    });
  });
}

TEST(LowRankKernels, FactorsCombineInFloatsOnEveryTarget) {
  ForEachTarget([] {
    ForEachShape([](size_t rows, size_t n, size_t rank) {
      const size_t p_stride = rows + 4, q_stride = n + 1;
      const std::vector<float> p = ValuesOfAllSizes(rank * p_stride, 5, kPowers),
                               q = ValuesOfAllSizes(rank * q_stride, 6, kPowers);
      const std::vector<float> start = ValuesOfAllSizes(rows * n, 7, kPowers);
      std::vector<float> value(rows * n), sum(rows * n);
      for (size_t i = 0; i < rows; ++i) {
        for (size_t j = 0; j < n; ++j) {
          float v = p[i] * q[j];
          for (size_t k = 1; k < rank; ++k) {
            const float product = p[k * p_stride + i] * q[k * q_stride + j];
            v = v + product;
          }
          value[i * n + j] = v;
          const float product = -0.3f * v;
          sum[i * n + j] = start[i * n + j] + product;
        }
      }
      const FactorView left{p.data(), p_stride, rank}, right{q.data(), q_stride, rank};
      std::vector<float> out(rows * n), out_sum = start;
      ASSERT_TRUE(CombineFactors(left, right, rows, n, out.data()));
      ASSERT_TRUE(CombineAddFactors(left, right, rows, n, -0.3f, out_sum.data()));
      ASSERT_EQ(out, value);
      ASSERT_EQ(out_sum, sum);
    });
  });
}

TEST(LowRankKernels, ProductsThatAreNotFiniteAreReported) {
  constexpr float kMax = std::numeric_limits<float>::max();
  ForEachTarget([] {
    for (const size_t n : kWidths) {
      for (size_t bad = 0; bad < n; bad += 1 + n / 8) {
        std::vector<float> p{0.5f, 2, 1, 1}, q(2 * n, 1);  // two rows, rank 2
        std::vector<float> out(2 * n);
        const FactorView left{p.data(), 2, 2}, right{q.data(), n, 2};
        EXPECT_TRUE(CombineFactors(left, right, 2, n, out.data()));
        q[bad] = kMax;  // overflows in the second row only
        EXPECT_FALSE(CombineFactors(left, right, 2, n, out.data())) << bad << " of " << n;
        EXPECT_FALSE(CombineAddFactors(left, right, 2, n, 0, out.data()));
      }
    }
  });
}

}  // namespace
}  // namespace elastiquant
