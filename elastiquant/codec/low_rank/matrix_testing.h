// For tests: matrices with singular values that are known, and distances between vectors.
#pragma once

#include <cmath>
#include <random>
#include <span>
#include <vector>

#include "elastiquant/codec/low_rank/matrix_factors.h"

namespace elastiquant {

inline std::vector<float> GaussianValues(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(generator);
  return values;
}

// A rows x cols matrix with these singular values and random singular vectors.
inline std::vector<float> MatrixOf(size_t rows, size_t cols,
                                   const std::vector<double>& singular, unsigned seed) {
  const size_t rank = singular.size();
  const auto orthonormal = [&](size_t length, unsigned own_seed) {
    const std::vector<float> drawn = GaussianValues(length * rank, own_seed);
    std::vector<double> columns(drawn.begin(), drawn.end());
    Orthonormalize(columns, rank);
    return columns;
  };
  const auto u = orthonormal(rows, seed), v = orthonormal(cols, seed + 1000);
  std::vector<float> matrix(rows * cols);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < cols; ++j) {
      double sum = 0;
      for (size_t k = 0; k < rank; ++k) sum += singular[k] * u[k * rows + i] * v[k * cols + j];
      matrix[i * cols + j] = static_cast<float>(sum);
    }
  }
  return matrix;
}

inline double SquaredError(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double error = static_cast<double>(a[i]) - b[i];
    sum += error * error;
  }
  return sum;
}
inline double SquaredNorm(std::span<const float> v) {
  return SquaredError(v, std::vector<float>(v.size()));
}

}  // namespace elastiquant
