// Multiplies a row-major matrix of floats by a few vectors, for low-rank codecs. Sums are
// doubles, which hold each product of two floats exactly, and run in one fixed order, so that
// every target gives the same result to the bit.
#pragma once

#include <cstddef>

namespace elastiquant {

// `rank` vectors of the same length, one every `stride` floats.
struct FactorView {
  const float* data = nullptr;
  size_t stride = 0;
  size_t rank = 0;
};

// Sets p[k * p_stride + i] to the sum over j < n of m[i * n + j] * q_k[j], for i < rows.
// Coordinate j is summed in lane j mod 16, and the lanes are added in one fixed tree.
void DotRows(const float* m, size_t rows, size_t n, const FactorView& q, double* p,
             size_t p_stride);

// Adds p_k[i] * m[i * m_stride + j] to sums[k * sums_stride + j] for j < n, row after row.
void AddScaledRows(const float* m, size_t m_stride, size_t rows, size_t n, const FactorView& p,
                   double* sums, size_t sums_stride);

// Computes value = p_0[i] * q_0[j] + p_1[i] * q_1[j] + ... in floats, and rounds each product
// and each sum in this order. Writes out[i * n + j] = value, or adds weight * value to it, for
// i < rows and j < n. Returns false if a value is NaN or infinite; then what was written is
// unspecified.
bool CombineFactors(const FactorView& p, const FactorView& q, size_t rows, size_t n,
                    float* out);
bool CombineAddFactors(const FactorView& p, const FactorView& q, size_t rows, size_t n,
                       float weight, float* out);

}  // namespace elastiquant
