#include "elastiquant/codec/low_rank/matrix_factors.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>

#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

constexpr size_t kMultipliedAtOnce = size_t{1} << 14;  // values that one thread takes at a time
constexpr size_t kStripe = 512;       // columns likewise: their sums stay in its cache
constexpr double kDependent = 1e-12;  // of a column's norm

// Calls fn(first row, rows) for each block of whole rows.
template <typename Fn>
void ForEachBlock(size_t rows, size_t cols, Workspace& work, const Fn& fn) {
  const size_t block = std::max<size_t>(1, kMultipliedAtOnce / cols);
  const auto item = [&](size_t i, int) { fn(i * block, std::min(block, rows - i * block)); };
  work.ParallelFor((rows + block - 1) / block, std::cref(item));
}

// The sum of four uniform numbers of 16 bits, of mean 0 and variance 1. Made from integers, as
// all machines must draw the same.
float Draw(LaneKeys keys, uint32_t i) {
  const uint32_t a = RandomBits(keys, 2 * i), b = RandomBits(keys, 2 * i + 1);
  const auto sum = static_cast<int32_t>((a & 0xFFFF) + (a >> 16) + (b & 0xFFFF) + (b >> 16));
  constexpr float kRootOf3 = 1.7320508f;
  return static_cast<float>(sum - 2 * 0xFFFF) * 0x1p-16f * kRootOf3;
}

double Dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

template <typename Combine>
bool CombineBlocks(const FactorView& p, const FactorView& q, const TensorShape& shape,
                   Workspace& work, std::span<float> out, const Combine& combine) {
  const size_t whole = out.size() / shape.cols, rest = out.size() % shape.cols;
  const auto below = [&](size_t row) { return FactorView{p.data + row, p.stride, p.rank}; };
  std::atomic<bool> finite{true};
  ForEachBlock(whole, shape.cols, work, [&](size_t first, size_t rows) {
    if (!combine(below(first), q, rows, shape.cols, out.data() + first * shape.cols)) {
      finite = false;
    }
  });
  if (rest > 0 && !combine(below(whole), q, 1, rest, out.data() + whole * shape.cols)) {
    finite = false;
  }
  return finite;
}

}  // namespace

void PrepareBasis(std::span<const float> remembered, size_t rank, StreamKey key,
                  std::span<float> basis) {
  const LaneKeys keys = MakeLaneKeys(key);
  const size_t cols = basis.size() / rank;
  for (size_t k = 0; k < rank; ++k) {
    const std::span<float> column = basis.subspan(k * cols, cols);
    uint32_t largest = 0;
    if (!remembered.empty()) largest = AbsMaxBits(remembered.data() + k * cols, cols);
    if (largest == 0 || largest >= kNonFiniteBits) {
      for (size_t j = 0; j < cols; ++j) {
        column[j] = Draw(keys, static_cast<uint32_t>(k * cols + j));
      }
      continue;
    }
    const int exponent = std::ilogb(std::bit_cast<float>(largest));
    for (size_t j = 0; j < cols; ++j) {
      column[j] = std::ldexp(remembered[k * cols + j], -exponent);
    }
  }
}

void MultiplyRows(const MatrixView& m, const FactorView& q, Workspace& work,
                  std::span<double> p) {
  const size_t rows = m.shape.rows, cols = m.shape.cols;
  const size_t whole = m.values.size() / cols, rest = m.values.size() % cols;
  const float* const values = m.values.data();
  ForEachBlock(whole, cols, work, [&, stride = rows, n = cols](size_t first, size_t count) {
    DotRows(values + first * n, count, n, q, p.data() + first, stride);
  });
  if (rest > 0) DotRows(values + whole * cols, 1, rest, q, p.data() + whole, rows);
}

void Orthonormalize(std::span<double> p, size_t rank) {
  const size_t rows = p.size() / rank;
  const auto column = [&](size_t k) { return p.subspan(k * rows, rows); };
  for (size_t k = 0; k < rank; ++k) {
    const std::span<double> own = column(k);
    const double before = std::sqrt(Dot(own, own));
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t other = 0; other < k; ++other) {
        const std::span<const double> unit = column(other);
        const double along = Dot(own, unit);
        for (size_t i = 0; i < rows; ++i) own[i] -= along * unit[i];
      }
    }
    const double after = std::sqrt(Dot(own, own));
    const bool dependent = !(after > kDependent * before);
    for (double& v : own) v = dependent ? 0 : v / after;
  }
}

void MultiplyColumns(const MatrixView& m, const FactorView& p, Workspace& work,
                     std::span<double> q) {
  const size_t cols = m.shape.cols;
  const size_t whole = m.values.size() / cols, rest = m.values.size() % cols;
  const auto stripe = [&](size_t item, int) {
    const size_t first = item * kStripe, count = std::min(kStripe, cols - first);
    for (size_t k = 0; k < p.rank; ++k) std::fill_n(q.data() + k * cols + first, count, 0.0);
    const float* const values = m.values.data() + first;
    AddScaledRows(values, cols, whole, count, p, q.data() + first, cols);
    if (rest <= first) return;
    AddScaledRows(values + whole * cols, cols, 1, std::min(count, rest - first),
                  {p.data + whole, p.stride, p.rank}, q.data() + first, cols);
  };
  work.ParallelFor((cols + kStripe - 1) / kStripe, std::cref(stripe));
}

Status RoundFactors(std::span<const double> factors, size_t rank, std::span<float> rounded) {
  const size_t length = factors.size() / rank;
  double sum = 0;  // of the columns' largest magnitudes: no product can be larger
  for (size_t k = 0; k < rank; ++k) {
    double largest = 0;
    for (const double v : factors.subspan(k * length, length)) {
      largest = std::max(largest, std::fabs(v));
    }
    sum += largest;
  }
  if (!(sum <= 0x1p127)) {
    return OutOfRange("the matrix has factors beyond fp32: scale the gradients down");
  }
  for (size_t i = 0; i < factors.size(); ++i) rounded[i] = static_cast<float>(factors[i]);
  return Status::Ok();
}

bool MultiplyFactors(const FactorView& p, const FactorView& q, const TensorShape& shape,
                     Workspace& work, std::span<float> out) {
  return CombineBlocks(p, q, shape, work, out, CombineFactors);
}

bool MultiplyAddFactors(const FactorView& p, const FactorView& q, const TensorShape& shape,
                        float weight, Workspace& work, std::span<float> out) {
  return CombineBlocks(
      p, q, shape, work, out,
      [weight](const FactorView& left, const FactorView& right, size_t rows, size_t n,
               float* to) { return CombineAddFactors(left, right, rows, n, weight, to); });
}

}  // namespace elastiquant
