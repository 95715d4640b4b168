#include "elastiquant/exchange/factor_bucket.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// NaN stays NaN.
void RoundOrInfinity(std::span<const double> exact, std::span<float> rounded) {
  constexpr double kMost = std::numeric_limits<float>::max();
  for (size_t i = 0; i < exact.size(); ++i) {
    rounded[i] = std::fabs(exact[i]) > kMost ? kInfinity : static_cast<float>(exact[i]);
  }
}

}  // namespace

FactorBucket::FactorBucket(std::shared_ptr<const Codec> codec, FactorPlan plan,
                           std::span<float> gradient)
    : plan_(std::move(plan)), gradient_(gradient), stream_(std::move(codec), gradient.size()) {
  size_t rows = 0, cols = 0, dense = 0, longest = 0;
  for (const FactorPlan::Tensor& tensor : plan_.tensors) {
    if (tensor.dense) {
      dense += tensor.size;
      continue;
    }
    rows += tensor.shape.rows;
    cols += tensor.shape.cols;
    longest = std::max({longest, tensor.shape.rows, tensor.shape.cols});
  }
  p_.resize(plan_.rank * rows);
  q_.resize(plan_.rank * cols);
  dense_.resize(dense);
  exact_.resize(plan_.rank * longest);
  std::span<float> p = p_, q = q_;
  for (const FactorPlan::Tensor& tensor : plan_.tensors) {
    if (tensor.dense) continue;
    const size_t p_size = plan_.rank * tensor.shape.rows,
                 q_size = plan_.rank * tensor.shape.cols;
    factors_.push_back({&tensor, p.first(p_size), q.first(q_size)});
    p = p.subspan(p_size);
    q = q.subspan(q_size);
  }
}

MatrixView FactorBucket::Matrix(const Factors& factors) const {
  const FactorPlan::Tensor& tensor = *factors.tensor;
  return {gradient_.subspan(tensor.begin, tensor.size), tensor.shape};
}

template <typename Fn>
void FactorBucket::ForEachDense(const Fn& fn) {
  std::span<float> rest = dense_;
  for (const FactorPlan::Tensor& tensor : plan_.tensors) {
    if (!tensor.dense) continue;
    fn(tensor, rest.first(tensor.size));
    rest = rest.subspan(tensor.size);
  }
}

void FactorBucket::Project(StreamKey key, Workspace& work) {
  part_ = stream_.PartOf(0, gradient_.size());
  if (plan_.error_feedback) {
    const std::span<const float> residual = before()[0];
    for (size_t i = 0; i < gradient_.size(); ++i) gradient_[i] += residual[i];
  }
  ForEachDense([&](const FactorPlan::Tensor& tensor, std::span<float> to) {
    std::ranges::copy(gradient_.subspan(tensor.begin, tensor.size), to.begin());
  });
  const std::span<const float> basis = before().back();
  for (size_t t = 0; t < factors_.size(); ++t) {
    const Factors& f = factors_[t];
    PrepareBasis(basis.subspan(f.tensor->begin, f.tensor->size), plan_.rank,
                 StreamKey{Mix64(key.value + t)}, f.q);
    const std::span<double> exact = std::span(exact_).first(f.p.size());
    MultiplyRows(Matrix(f), Q(f), work, exact);
    RoundOrInfinity(exact, f.p);
  }
}

void FactorBucket::ProjectBack(Workspace& work) {
  for (const Factors& f : factors_) {
    std::span<double> exact = std::span(exact_).first(f.p.size());
    std::ranges::copy(f.p, exact.begin());
    Orthonormalize(exact, plan_.rank);
    std::ranges::transform(exact, f.p.begin(), [](double v) { return static_cast<float>(v); });
    exact = std::span(exact_).first(f.q.size());
    MultiplyColumns(Matrix(f), P(f), work, exact);
    if (!RoundFactors(exact, plan_.rank, f.q).ok()) {
      f.q[0] = kInfinity;
    }
  }
}

void FactorBucket::Reconstruct(Workspace& work) {
  const std::span<float> basis = after().back();
  std::ranges::fill(basis, 0.0f);
  // Where there is a residual, M is in it while the gradient is overwritten.
  const std::span<float> residual = plan_.error_feedback ? after()[0] : std::span<float>();
  std::copy_n(gradient_.begin(), residual.size(), residual.begin());
  for (const Factors& f : factors_) {
    MultiplyFactors(P(f), Q(f), f.tensor->shape, work,
                    gradient_.subspan(f.tensor->begin, f.tensor->size));
    std::ranges::copy(f.q, basis.begin() + static_cast<ptrdiff_t>(f.tensor->begin));
  }
  for (size_t i = 0; i < residual.size(); ++i) residual[i] -= gradient_[i];
  ForEachDense([&](const FactorPlan::Tensor& tensor, std::span<const float> mean) {
    std::ranges::copy(mean, gradient_.begin() + static_cast<ptrdiff_t>(tensor.begin));
    if (!residual.empty()) {
      std::ranges::fill(residual.subspan(tensor.begin, tensor.size), 0.0f);
    }
  });
}

FactorBucket::Error FactorBucket::Measure() const {
  Error error;
  error.squared_norm = SumSquares(gradient_.data(), gradient_.size());
  for (const Factors& f : factors_) {
    const std::span<const float> m = Matrix(f).values;
    error.squared_error +=
        std::max(0.0, SumSquares(m.data(), m.size()) - SumSquares(f.q.data(), f.q.size()));
  }
  return error;
}

}  // namespace elastiquant
