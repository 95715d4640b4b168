#include "elastiquant/codec/low_rank/matrix_factors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "elastiquant/codec/low_rank/matrix_testing.h"

namespace elastiquant {
namespace {

double Product(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

TEST(PrepareBasis, DrawsFromTheKeyWithMeanZeroAndVarianceOne) {
  constexpr size_t kCols = 5000, kRank = 2;
  std::vector<float> basis(kCols * kRank), again(kCols * kRank);
  PrepareBasis({}, kRank, {7}, basis);
  PrepareBasis(std::vector<float>(kCols * kRank, 0.0f), kRank, {7}, again);
  EXPECT_EQ(basis, again);
  PrepareBasis({}, kRank, {8}, again);
  EXPECT_NE(basis, again);
  double sum = 0, squares = 0, across = 0;
  for (size_t j = 0; j < basis.size(); ++j) {
    sum += basis[j];
    squares += static_cast<double>(basis[j]) * basis[j];
    if (j < kCols) across += static_cast<double>(basis[j]) * basis[kCols + j];
  }
  EXPECT_LT(std::abs(sum) / std::sqrt(1e4), 4);
  EXPECT_NEAR(squares / 1e4, 1, 0.05);
  EXPECT_LT(std::abs(across) / std::sqrt(5e3), 4) << "columns are independent";
}

TEST(PrepareBasis, ScalesByPowersOfTwoAndRevivesDeadColumns) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> remembered{3e38f, -1e38f, 3 * kTiny, kTiny, 0, 0, NAN, 1};
  std::vector<float> basis(8);
  PrepareBasis(remembered, 4, {1}, basis);
  EXPECT_EQ(basis[0] / basis[1], 3e38f / -1e38f);
  EXPECT_EQ(basis[2], 1.5f);
  EXPECT_EQ(basis[3], 0.5f);
  std::vector<float> drawn(8);
  PrepareBasis({}, 4, {1}, drawn);
  for (size_t i = 4; i < 8; ++i) EXPECT_EQ(basis[i], drawn[i]);
  EXPECT_GE(std::abs(basis[0]), 1);
  EXPECT_LT(std::abs(basis[0]), 2);
}

TEST(Orthonormalize, GivesUnitColumnsAtRightAngles) {
  constexpr size_t kRows = 60, kRank = 8;
  const std::vector<float> values = GaussianValues(kRows * kRank, 3);
  std::vector<double> p(values.begin(), values.end());
  // Nearly parallel columns, of very different lengths.
  for (size_t i = 0; i < kRows; ++i) {
    p[3 * kRows + i] = 1e30 * (p[2 * kRows + i] + 1e-7 * p[4 * kRows + i]);
    p[5 * kRows + i] *= 1e-40;
  }
  Orthonormalize(p, kRank);
  for (size_t a = 0; a < kRank; ++a) {
    for (size_t b = 0; b < kRank; ++b) {
      const double product = Product(std::span(p).subspan(a * kRows, kRows),
                                     std::span(p).subspan(b * kRows, kRows));
      EXPECT_NEAR(product, a == b ? 1 : 0, 1e-14) << a << " " << b;
    }
  }
}

TEST(Orthonormalize, DependentColumnsBecomeZeros) {
  std::vector<double> p{1, 2, 2, /**/ -3, -6, -6, /**/ 0, 0, 0, /**/ 2, 0, -1};
  Orthonormalize(p, 4);
  EXPECT_NEAR(p[0], 1.0 / 3, 1e-15);
  for (size_t i = 3; i < 9; ++i) EXPECT_EQ(p[i], 0) << i;
  EXPECT_NEAR(p[9], 2 / std::sqrt(5.0), 1e-15);
}

// Against the definition, with the last row cut short.
TEST(Multiply, RowsAndColumnsAreThoseOfThePaddedMatrix) {
  for (const TensorShape shape :
       {TensorShape{1, 1}, {3, 7}, {70, 700}, {700, 70}, {2, 20000}}) {
    const size_t rows = shape.rows, cols = shape.cols;
    for (const size_t missing : {size_t{0}, size_t{1}, cols - 1}) {
      if (missing >= cols) continue;
      const std::vector<float> m = GaussianValues(rows * cols - missing, 5);
      constexpr size_t kRank = 3;
      const std::vector<float> q = GaussianValues(cols * kRank, 6),
                               p = GaussianValues(rows * kRank, 7);
      std::vector<double> mq(rows * kRank), mtp(cols * kRank), mq3(mq), mtp3(mtp);
      Workspace one(1), three(3);
      MultiplyRows({m, shape}, {q.data(), cols, kRank}, one, mq);
      MultiplyRows({m, shape}, {q.data(), cols, kRank}, three, mq3);
      MultiplyColumns({m, shape}, {p.data(), rows, kRank}, one, mtp);
      MultiplyColumns({m, shape}, {p.data(), rows, kRank}, three, mtp3);
      EXPECT_EQ(mq, mq3);
      EXPECT_EQ(mtp, mtp3);
      std::vector<double> rows_sum(rows * kRank), cols_sum(cols * kRank);
      for (size_t i = 0; i < m.size(); ++i) {
        for (size_t k = 0; k < kRank; ++k) {
          const double v = m[i];
          rows_sum[k * rows + i / cols] += v * q[k * cols + i % cols];
          cols_sum[k * cols + i % cols] += v * p[k * rows + i / cols];
        }
      }
      for (size_t i = 0; i < mq.size(); ++i) ASSERT_NEAR(mq[i], rows_sum[i], 1e-10);
      for (size_t i = 0; i < mtp.size(); ++i) ASSERT_NEAR(mtp[i], cols_sum[i], 1e-10);
    }
  }
}

TEST(RoundFactors, RefusesWhatAProductCouldOverflow) {
  std::vector<float> rounded(4);
  EXPECT_TRUE(RoundFactors(std::vector<double>{0x1p126, 0, -0x1p126, 1}, 2, rounded).ok());
  EXPECT_EQ(rounded[2], -0x1p126f);
  EXPECT_EQ(RoundFactors(std::vector<double>{0x1p127, 0, -0x1p126, 1}, 2, rounded).code(),
            StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace elastiquant
