#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <map>
#include <string>

#include "elastiquant/train/optimizer.h"
#include "elastiquant/train/stored_tensor.h"

namespace elastiquant {
namespace {

// The tensors of the parameters with one weight decay, for ATen's fused step.
struct Group {
  std::vector<at::Tensor> parameters, first, second, steps;
};

class AdamW final : public Optimizer {
 public:
  AdamW(std::span<const NamedTensor> parameters, const TrainOptions& options)
      : beta1_(options.beta1),
        beta2_(options.beta2),
        epsilon_(options.epsilon),
        steps_(at::zeros({}, at::kFloat)) {
    for (const auto& [name, tensor] : parameters) {
      Group& group = groups_[WeightDecayOf(tensor, options)];
      const at::Tensor first = at::zeros_like(tensor), second = at::zeros_like(tensor);
      group.parameters.push_back(tensor);
      group.first.push_back(first);
      group.second.push_back(second);
      group.steps.push_back(steps_);
      moments_.push_back(second);
      state_.push_back({kOptimizerPrefix + ("exp_avg." + name), first});
      state_.push_back({kOptimizerPrefix + ("exp_avg_sq." + name), second});
    }
    state_.push_back({kOptimizerPrefix + std::string("step"), steps_});
  }

  void Step(double learning_rate) override {
    const c10::NoGradGuard no_grad;
    steps_.add_(1);
    for (auto& [decay, group] : groups_) {
      std::vector<at::Tensor> gradients;
      for (const at::Tensor& p : group.parameters) gradients.push_back(p.grad());
      at::_fused_adamw_(group.parameters, gradients, group.first, group.second, {}, group.steps,
                        learning_rate, beta1_, beta2_, decay, epsilon_,
                        /*amsgrad=*/false, /*maximize=*/false);
    }
  }

  const std::vector<NamedTensor>& state() const override { return state_; }
  std::vector<at::Tensor> second_moments() const override { return moments_; }

 private:
  const double beta1_, beta2_, epsilon_;
  at::Tensor steps_;                // how many were made
  std::map<double, Group> groups_;  // by weight decay
  std::vector<at::Tensor> moments_;
  std::vector<NamedTensor> state_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdamW(std::span<const NamedTensor> parameters,
                                     const TrainOptions& options) {
  return std::make_unique<AdamW>(parameters, options);
}

}  // namespace elastiquant
