// DeMo (Peng, Quesnelle and Kingma, "DeMo: Decoupled Momentum Optimization", 2024, algorithm
// 1): each worker keeps a momentum of its own and sends only what changes fast in it, the
// largest coefficients of the cosine transform of each block, which it then takes out of the
// momentum. The weights move by the sign of the mean. In place of a coefficient its bfloat16 or
// its sign may travel, as in the public code of Psyche.
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "elastiquant/train/optimizer.h"
#include "elastiquant/train/stored_tensor.h"

namespace elastiquant {
namespace {

// The matrix of the orthonormal cosine transform (DCT-II) of n values: its inverse is its
// transpose.
at::Tensor CosineTransform(int64_t n) {
  at::Tensor matrix = at::empty({n, n});
  auto* value = matrix.data_ptr<float>();
  for (int64_t k = 0; k < n; ++k) {
    const double scale = std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(n));
    for (int64_t i = 0; i < n; ++i) {
      const double angle =
          std::numbers::pi * static_cast<double>((2 * i + 1) * k) / static_cast<double>(2 * n);
      *value++ = static_cast<float>(scale * std::cos(angle));
    }
  }
  return matrix;
}

// As the authors' code divides tensors: sides of blocks are divisors.
int64_t LargestDivisor(int64_t of, int64_t most) {
  int64_t divisor = std::clamp<int64_t>(most, 1, std::max<int64_t>(1, of));
  while (of % divisor != 0) --divisor;
  return divisor;
}

// Cuts a tensor into blocks and transforms them. Tensors of more than two dimensions are
// matrices whose rows are the first, and vectors are one row.
class Blocks {
 public:
  Blocks(const at::Tensor& like, int64_t side)
      : rows_(like.dim() > 1 ? like.size(0) : 1),
        columns_(like.numel() / std::max<int64_t>(1, rows_)),
        height_(LargestDivisor(rows_, side)),
        width_(LargestDivisor(columns_, side)),
        down_(CosineTransform(height_)),
        across_(CosineTransform(width_)) {}

  // Returns [blocks, values] of the transform.
  at::Tensor Transform(const at::Tensor& tensor) const {
    const at::Tensor blocks =
        tensor.reshape({rows_ / height_, height_, columns_ / width_, width_}).transpose(1, 2);
    return at::matmul(at::matmul(down_, blocks), across_.t()).reshape({-1, height_ * width_});
  }
  // Returns what Transform was given, in its shape `sizes`.
  at::Tensor Inverse(const at::Tensor& coefficients, at::IntArrayRef sizes) const {
    const at::Tensor blocks =
        coefficients.reshape({rows_ / height_, columns_ / width_, height_, width_});
    return at::matmul(at::matmul(down_.t(), blocks), across_).transpose(1, 2).reshape(sizes);
  }

 private:
  const int64_t rows_, columns_, height_, width_;
  const at::Tensor down_, across_;
};

// What travels in place of coefficients, in 32, 16 or 1 bits each.
at::Tensor Rounded(const at::Tensor& coefficients, int64_t bits) {
  if (bits == 1) return coefficients.sign();
  return bits == 16 ? coefficients.to(at::kBFloat16).to(at::kFloat) : coefficients;
}

class Demo final : public Optimizer {
 public:
  Demo(std::span<const NamedTensor> parameters, const TrainOptions& options,
       const Algorithm& algorithm)
      : algorithm_(algorithm) {
    for (const auto& [name, tensor] : parameters) {
      members_.push_back({tensor, Blocks(tensor, algorithm.block), at::zeros_like(tensor),
                          at::zeros_like(tensor), WeightDecayOf(tensor, options)});
      own_state_.push_back({kOptimizerPrefix + ("delta." + name), members_.back().delta});
    }
  }

  void BeginStep(int64_t, double learning_rate) override { learning_rate_ = learning_rate; }
  bool sends_gradients() const override { return false; }

  // Sends the chosen coefficients, and zeros in place of the others. What is left of the
  // momentum counts once the step does.
  void Prepare(size_t parameter) override {
    const c10::NoGradGuard no_grad;
    Member& m = members_[parameter];
    const at::Tensor gradient = m.parameter.grad();
    m.next.copy_(m.delta).mul_(algorithm_.decay).add_(gradient, learning_rate_);
    const at::Tensor all = m.blocks.Transform(m.next);
    const int64_t top = std::min(algorithm_.top, all.size(1));
    const at::Tensor where = std::get<1>(all.abs().topk(top, /*dim=*/1));
    const at::Tensor chosen = at::zeros_like(all).scatter_(1, where, all.gather(1, where));
    const at::Tensor sent = Rounded(chosen, algorithm_.bits);
    // Where signs travel, the whole coefficient leaves the momentum. What bfloat16 rounds away
    // stays in it.
    const at::Tensor& gone = algorithm_.bits == 1 ? chosen : sent;
    m.next.sub_(m.blocks.Inverse(gone, m.next.sizes()));
    gradient.copy_(sent.view(gradient.sizes()));
  }

  void Step(double learning_rate) override {
    const c10::NoGradGuard no_grad;
    for (Member& m : members_) {
      m.delta.copy_(m.next);
      const at::Tensor mean = m.blocks.Inverse(m.parameter.grad(), m.parameter.sizes());
      m.parameter.mul_(1 - learning_rate * m.decay);
      m.parameter.sub_(mean.sign(), learning_rate);
    }
  }

  const std::vector<NamedTensor>& state() const override { return state_; }
  const std::vector<NamedTensor>& own_state() const override { return own_state_; }

 private:
  struct Member {
    at::Tensor parameter;
    Blocks blocks;
    at::Tensor delta, next;  // the momentum, and what it is if the step is not skipped
    double decay;
  };

  const Algorithm algorithm_;
  double learning_rate_ = 0;
  std::vector<Member> members_;
  std::vector<NamedTensor> state_;  // none
  std::vector<NamedTensor> own_state_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeDemo(std::span<const NamedTensor> parameters,
                                    const TrainOptions& options, const Algorithm& algorithm) {
  return std::make_unique<Demo>(parameters, options, algorithm);
}

}  // namespace elastiquant
