// Power iteration on the matrices of a message (Vogels et al., "PowerSGD", NeurIPS 2019):
// with a basis Q of r columns, P = orthonormal(M Q), Q' = M^T P, and M is nearly P Q'^T. Every
// sum has one fixed order, so that threads, SIMD targets and machines agree on each bit.
#pragma once

#include <span>

#include "elastiquant/base/random.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/kernels/low_rank/low_rank.h"

namespace elastiquant {

// A matrix in row-major order. Its last row may be cut short; what is missing counts as 0.
struct MatrixView {
  std::span<const float> values;
  TensorShape shape;
};

// Makes a basis of `rank` columns of `cols` values ready to be multiplied with: a column is
// scaled by a power of two to a largest magnitude in [1, 2); one that is all zeros, or has a
// NaN or infinity, is drawn anew: independent coordinates, symmetric and nearly N(0, 1).
void PrepareBasis(std::span<const float> remembered, size_t rank, StreamKey key,
                  std::span<float> basis);

// P = M Q: p has q.rank columns of `rows` values. All finite if and only if M is.
void MultiplyRows(const MatrixView& m, const FactorView& q, Workspace& work,
                  std::span<double> p);

// Gram-Schmidt, each column twice against those before it. What is linearly dependent becomes
// a column of zeros.
void Orthonormalize(std::span<double> p, size_t rank);

// Q = M^T P: q has p.rank columns of `cols` values.
void MultiplyColumns(const MatrixView& m, const FactorView& p, Workspace& work,
                     std::span<double> q);

// To fp32. Fails with kOutOfRange if a product of these factors with columns of norm 1 might
// exceed fp32.
Status RoundFactors(std::span<const double> factors, size_t rank, std::span<float> rounded);

// out = P Q^T, or out += weight * P Q^T, as CombineFactors says. False if a value is not
// finite. `out` may lack the end of the last row.
bool MultiplyFactors(const FactorView& p, const FactorView& q, const TensorShape& shape,
                     Workspace& work, std::span<float> out);
bool MultiplyAddFactors(const FactorView& p, const FactorView& q, const TensorShape& shape,
                        float weight, Workspace& work, std::span<float> out);

}  // namespace elastiquant
