// How the weights of a replica move by their mean gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/flat_gradients.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// Replica has one. A step is BeginStep, Prepare of each parameter, and, unless the step is
// skipped, Step. Under most, workers send their gradients as they are.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Begins step `step` of the run, counted from 0.
  virtual void BeginStep(int64_t step, double learning_rate) {
    (void)step, (void)learning_rate;
  }
  // These say of the step that has begun whether its values are sent uncompressed, and whether
  // they are gradients.
  virtual bool sends_exactly() const { return false; }
  virtual bool sends_gradients() const { return true; }

  // Turns the gradient that a parameter holds, which is this worker's own, into what the worker
  // sends of it, in as many values. Called on the thread that runs backward.
  virtual void Prepare(size_t parameter) { (void)parameter; }

  // Moves the parameters by the means, over the workers, of what was sent, which they hold as
  // their gradients.
  virtual void Step(double learning_rate) = 0;

  // Returns all that it remembers, under the names that checkpoints have for it, such as
  // "optimizer.momentum.fc.weight". The tensors are contiguous, stay where they are, and may be
  // written to between steps.
  // All workers have the same.
  virtual const std::vector<NamedTensor>& state() const = 0;
  // Returns what it remembers on this worker alone, likewise.
  virtual const std::vector<NamedTensor>& own_state() const {
    static const std::vector<NamedTensor> none;
    return none;
  }

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

// 1-bit Adam and 0/1 Adam (one_bit_adam.cc).
std::unique_ptr<Optimizer> MakeOneBitAdam(std::span<const NamedTensor> parameters,
                                          const TrainOptions& options,
                                          const Algorithm& algorithm);

// DeMo (demo.cc).
std::unique_ptr<Optimizer> MakeDemo(std::span<const NamedTensor> parameters,
                                    const TrainOptions& options, const Algorithm& algorithm);

// Makes the one that TrainOptions::algorithm names, and under "allreduce" that of
// TrainOptions::optimizer. Fails as ParseAlgorithm and MakeSgd do.
Result<std::unique_ptr<Optimizer>> MakeOptimizer(std::span<const NamedTensor> parameters,
                                                 const TrainOptions& options);

// Returns the weight decay of a parameter: biases and norms may have none.
double WeightDecayOf(const at::Tensor& parameter, const TrainOptions& options);

}  // namespace elastiquant
