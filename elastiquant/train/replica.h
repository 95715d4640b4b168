// One worker's copy of what is trained: the model's parameters and buffers, and the optimiser
// with its state. Parameters and that state are the same bits on every worker. Buffers (the
// running statistics of batch normalisation) are each worker's own: they are no part of
// training, and worker 0's are the model's. The others take them over before each evaluation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/layers/metric.h"
#include "elastiquant/models/model.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/runs/checkpoint.h"
#include "elastiquant/train/flat_gradients.h"
#include "elastiquant/train/optimizer.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

class Replica {
 public:
  // Fails as MakeOptimizer does.
  static Result<std::unique_ptr<Replica>> Make(std::shared_ptr<Model> model,
                                               const TrainOptions& options);

  Model& model() { return *model_; }
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

  // Says how the parameters move, and what is sent for it.
  Optimizer& optimizer() { return *optimizer_; }
  // Returns what Optimizer::second_moments does. The values stay where they are.
  SecondMoments second_moments() const;

  // Returns a hash of all parameters' bits.
  uint64_t Hash() const;

  // Collective. Everything, or the buffers alone, becomes worker 0's.
  Status TakeOver(Communicator& comm);
  Status TakeOverBuffers(Communicator& comm);

  // Collective. The running statistics of batch normalisation become those of all workers'
  // batches together, whose means differ: the mean of the means, and the mean of the second
  // moments less its square. Buffers of whole numbers become worker 0's.
  // `weights` says what each worker counts for; none: all the same.
  Status AverageBuffers(Communicator& comm, const std::vector<double>& weights);

  std::vector<uint8_t> CopyBuffers() const;
  void RestoreBuffers(std::span<const uint8_t> copy);

  // Copies what the optimiser remembers that all workers have the same, and puts it back.
  std::vector<uint8_t> CopyOptimizer() const;
  void RestoreOptimizer(std::span<const uint8_t> copy);

  // Returns the parameters, then the buffers: what PyTorch's state_dict() has, under the same
  // names.
  std::vector<NamedTensor> State() const;
  // Adds the tensors under these names, and the optimiser's state under names of its own.
  void Save(Checkpoint* checkpoint) const;
  // Fails with CorruptData, which names the tensor that is missing or has another dtype or
  // shape.
  Status Load(const Checkpoint& checkpoint);
  // The same of what is this worker's alone: what the optimiser remembers here, and the
  // buffers. LoadOwn leaves the buffers if the checkpoint has none, as those of earlier
  // versions.
  bool has_own_state() const { return !optimizer_->own_state().empty(); }
  bool has_buffers() const { return !buffers_.empty(); }
  void SaveOwn(Checkpoint* checkpoint) const;
  Status LoadOwn(const Checkpoint& checkpoint);

  // Changes the last bit of one weight, so that tests can see that this is found.
  void Drift();

 private:
  Replica(std::shared_ptr<Model> model, std::unique_ptr<Optimizer> optimizer);

  std::shared_ptr<Model> model_;
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace elastiquant
