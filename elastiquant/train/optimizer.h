// How the weights of a replica move by their mean gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/train/flat_gradients.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// Replica has one.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Moves the parameters by the gradients that they hold.
  virtual void Step(double learning_rate) = 0;

  // Returns all that it remembers, under the names that checkpoints have for it, such as
  // "optimizer.momentum.fc.weight". The tensors are contiguous, stay where they are, and may be
  // written to between steps.
  virtual const std::vector<NamedTensor>& state() const = 0;

  // Returns the running means of squared gradients by which it divides, by parameter and
  // contiguous (layers/metric.h), or nothing if it does not divide.
  virtual std::vector<at::Tensor> second_moments() const { return {}; }
};

// Stochastic gradient descent with momentum, as TrainOptions::update says. Parameters that stay
// exact under a codec with momentum of its own have its momentum here. Fails as MakeCodec and
// PlanBuckets do.
Result<std::unique_ptr<Optimizer>> MakeSgd(std::span<const NamedTensor> parameters,
                                           const TrainOptions& options);

// Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay
// Regularization", ICLR 2019, algorithm 2), as torch.optim.AdamW has it.
std::unique_ptr<Optimizer> MakeAdamW(std::span<const NamedTensor> parameters,
                                     const TrainOptions& options);

// Makes the one that TrainOptions::optimizer names.
Result<std::unique_ptr<Optimizer>> MakeOptimizer(std::span<const NamedTensor> parameters,
                                                 const TrainOptions& options);

// Returns the weight decay of a parameter: biases and norms may have none.
double WeightDecayOf(const at::Tensor& parameter, const TrainOptions& options);

}  // namespace elastiquant
