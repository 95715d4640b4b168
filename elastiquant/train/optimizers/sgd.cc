#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/optim/sgd.h>

#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/remembering.h"
#include "elastiquant/layers/bucket_plan.h"
#include "elastiquant/train/optimizer.h"
#include "elastiquant/train/stored_tensor.h"

namespace elastiquant {
namespace {

// A group for each weight decay and each momentum.
std::vector<torch::optim::OptimizerParamGroup> MakeGroups(
    std::span<const NamedTensor> parameters, const TrainOptions& options,
    const std::vector<OwnMomentum>& momentum) {
  std::map<std::tuple<double, double, bool>, std::vector<at::Tensor>> members;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const at::Tensor& tensor = parameters[p].tensor;
    // The published update of PowerSGD has the decay in the gradient already.
    const double decay = options.update == "powersgd" ? 0 : WeightDecayOf(tensor, options);
    members[{decay, momentum[p].factor, momentum[p].nesterov}].push_back(tensor);
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (auto& [key, tensors] : members) {
    const auto& [decay, factor, nesterov] = key;
    auto sgd = std::make_unique<torch::optim::SGDOptions>(options.learning_rate);
    sgd->momentum(factor).weight_decay(decay).nesterov(nesterov);
    groups.emplace_back(std::move(tensors), std::move(sgd));
  }
  return groups;
}

// The momentum of the options, but that of the codec, if it has one, for what it leaves exact.
Result<std::vector<OwnMomentum>> MomentumByParameter(std::span<const ParameterShape> shapes,
                                                     const TrainOptions& options) {
  const OwnMomentum ordinary{options.momentum, options.nesterov};
  std::vector<OwnMomentum> momentum(shapes.size(), ordinary);
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(options.codec));
  const std::optional<OwnMomentum> own = MomentumOf(*codec);
  if (!own) return momentum;
  EQ_ASSIGN_OR_RETURN(const BucketPlan plan, PlanBuckets(shapes, {.exact = options.exact}));
  for (const PlannedBucket& bucket : plan.buckets) {
    if (!bucket.exact) continue;
    for (const BucketSlot& slot : bucket.slots) momentum[slot.parameter] = *own;
  }
  return momentum;
}

class Sgd final : public Optimizer {
 public:
  Sgd(std::span<const NamedTensor> parameters, const TrainOptions& options,
      const std::vector<OwnMomentum>& momentum)
      : parameters_(parameters.begin(), parameters.end()),
        sgd_(MakeGroups(parameters, options, momentum),
             torch::optim::SGDOptions(options.learning_rate)) {
    if (options.update == "powersgd") {
      for (const NamedTensor& p : parameters_) {
        powersgd_decay_.push_back(WeightDecayOf(p.tensor, options));
      }
    }
    // Made here, all zero, instead of by the first step, so that it can be saved and sent
    // always.
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (momentum[i].factor == 0) continue;
      const NamedTensor& p = parameters_[i];
      auto state = std::make_unique<torch::optim::SGDParamState>();
      state->momentum_buffer(at::zeros_like(p.tensor));
      state_.push_back({kOptimizerPrefix + ("momentum." + p.name), state->momentum_buffer()});
      sgd_.state()[p.tensor.unsafeGetTensorImpl()] = std::move(state);
    }
  }

  void Step(double learning_rate) override {
    const c10::NoGradGuard no_grad;
    // Of x -= lr (g + m) what torch's SGD, which does x -= lr m, leaves out.
    for (size_t i = 0; i < powersgd_decay_.size(); ++i) {
      at::Tensor& p = parameters_[i].tensor;
      p.mutable_grad().add_(p, powersgd_decay_[i]);
      p.sub_(p.grad(), learning_rate);
    }
    for (auto& group : sgd_.param_groups()) group.options().set_lr(learning_rate);
    sgd_.step();
  }

  const std::vector<NamedTensor>& state() const override { return state_; }

 private:
  std::vector<NamedTensor> parameters_;
  torch::optim::SGD sgd_;
  std::vector<NamedTensor> state_;      // of the parameters that have momentum
  std::vector<double> powersgd_decay_;  // by parameter, for update=powersgd; else empty
};

}  // namespace

Result<std::unique_ptr<Optimizer>> MakeSgd(std::span<const NamedTensor> parameters,
                                           const TrainOptions& options) {
  EQ_ASSIGN_OR_RETURN(const auto momentum, MomentumByParameter(ShapesOf(parameters), options));
  return std::unique_ptr<Optimizer>(std::make_unique<Sgd>(parameters, options, momentum));
}

}  // namespace elastiquant
