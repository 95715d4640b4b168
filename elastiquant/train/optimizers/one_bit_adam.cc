// 1-bit Adam (Tang et al., "1-bit Adam: Communication Efficient Large-Scale Training with
// Adam's Convergence Speed", ICML 2021, algorithm 1): after some steps of Adam its second
// moments are frozen, and workers average their momentum under a codec with error feedback. 0/1
// Adam (Lu et al., ICLR 2023) has no such steps in the beginning, but updates the second
// moments at times, ever more seldom; what it does without sending anything between two steps
// is not here.
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <string>

#include "elastiquant/train/optimizer.h"
#include "elastiquant/train/stored_tensor.h"

namespace elastiquant {
namespace {

class OneBitAdam final : public Optimizer {
 public:
  OneBitAdam(std::span<const NamedTensor> parameters, const TrainOptions& options,
             const Algorithm& algorithm)
      : algorithm_(algorithm),
        beta1_(options.beta1),
        beta2_(options.beta2),
        epsilon_(options.epsilon),
        steps_(at::zeros({2})) {
    for (const auto& [name, tensor] : parameters) {
      members_.push_back({tensor, at::zeros_like(tensor), at::zeros_like(tensor),
                          WeightDecayOf(tensor, options)});
      state_.push_back({kOptimizerPrefix + ("exp_avg." + name), members_.back().first});
      state_.push_back({kOptimizerPrefix + ("exp_avg_sq." + name), members_.back().second});
    }
    state_.push_back({kOptimizerPrefix + std::string("steps"), steps_});
  }

  // Step 0 is exact, but it may have been skipped because of a NaN, and without second moments
  // nothing would move. All workers count the same steps.
  void BeginStep(int64_t step, double) override {
    exact_ = algorithm_.IsExact(step) || steps_.data_ptr<float>()[1] == 0;
  }
  bool sends_exactly() const override { return exact_; }
  bool sends_gradients() const override { return exact_; }

  // The momentum is the same on all workers before the step, so that the mean of these is what
  // it is after it.
  void Prepare(size_t parameter) override {
    if (exact_) return;
    const c10::NoGradGuard no_grad;
    const Member& m = members_[parameter];
    m.parameter.grad().mul_(1 - beta1_).add_(m.first, beta1_);
  }

  void Step(double learning_rate) override {
    const c10::NoGradGuard no_grad;
    auto* steps = steps_.data_ptr<float>();
    steps[0] += 1;
    if (exact_) steps[1] += 1;
    // Both means begin at zero, which is corrected as Adam does. The first step that is made is
    // exact, so that the second moments have been updated at least once.
    const double first = 1 - std::pow(beta1_, steps[0]);
    const double second = 1 - std::pow(beta2_, steps[1]);
    for (const Member& m : members_) Move(m, learning_rate, first, second);
  }

  const std::vector<NamedTensor>& state() const override { return state_; }

 private:
  struct Member {
    at::Tensor parameter, first, second;
    double decay;
  };

  void Move(const Member& m, double learning_rate, double first, double second) const {
    const at::Tensor& mean = m.parameter.grad();
    if (exact_) {
      m.first.mul_(beta1_).add_(mean, 1 - beta1_);
      m.second.mul_(beta2_).addcmul_(mean, mean, 1 - beta2_);
    } else {
      m.first.copy_(mean);
    }
    m.parameter.mul_(1 - learning_rate * m.decay);
    // A weight whose gradient was always zero has nothing to divide by: signs would throw it
    // away. The authors' code has a mask for such weights.
    const at::Tensor root = m.second.div(second).sqrt_().add_(epsilon_);
    const at::Tensor step = at::where(m.second.gt(0), m.first.div(root), at::zeros({}));
    m.parameter.sub_(step, learning_rate / first);
  }

  const Algorithm algorithm_;
  const double beta1_, beta2_, epsilon_;
  bool exact_ = true;  // in this step
  at::Tensor steps_;   // how many there were, and how many of them updated the second moments
  std::vector<Member> members_;
  std::vector<NamedTensor> state_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeOneBitAdam(std::span<const NamedTensor> parameters,
                                          const TrainOptions& options,
                                          const Algorithm& algorithm) {
  return std::make_unique<OneBitAdam>(parameters, options, algorithm);
}

}  // namespace elastiquant
