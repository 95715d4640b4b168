#include "elastiquant/train/replica.h"

#include <ATen/ops/zeros_like.h>
#include <torch/optim/sgd.h>

#include <cstring>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/base/random.h"

namespace elastiquant {
namespace {

std::span<uint8_t> BytesOf(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous(), "parameters and buffers are contiguous (model.h)");
  return {static_cast<uint8_t*>(tensor.data_ptr()), tensor.nbytes()};
}

std::vector<uint8_t> Concatenate(const std::vector<NamedTensor>& tensors) {
  std::vector<uint8_t> all;
  for (const NamedTensor& t : tensors) {
    const auto bytes = BytesOf(t.tensor);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

void Scatter(std::span<const uint8_t> all, const std::vector<NamedTensor>& tensors) {
  for (const NamedTensor& t : tensors) {
    const auto bytes = BytesOf(t.tensor);
    std::copy_n(all.begin(), bytes.size(), bytes.begin());
    all = all.subspan(bytes.size());
  }
}

Status Broadcast(Communicator& comm, const std::vector<NamedTensor>& tensors) {
  std::vector<uint8_t> all = Concatenate(tensors);
  EQ_RETURN_IF_ERROR(comm.Broadcast(0, all));
  Scatter(all, tensors);
  return Status::Ok();
}

void SaveAll(const std::string& kind, const std::vector<NamedTensor>& tensors,
             Checkpoint* checkpoint) {
  for (const NamedTensor& t : tensors) {
    const auto bytes = BytesOf(t.tensor);
    (*checkpoint)[kind + t.name].assign(bytes.begin(), bytes.end());
  }
}

Status LoadAll(const std::string& kind, const std::vector<NamedTensor>& tensors,
               const Checkpoint& checkpoint) {
  for (const NamedTensor& t : tensors) {
    const auto section = checkpoint.find(kind + t.name);
    const auto bytes = BytesOf(t.tensor);
    if (section == checkpoint.end() || section->second.size() != bytes.size()) {
      return CorruptData("checkpoint: section " + kind + t.name + " should have " +
                         std::to_string(bytes.size()) + " bytes, it " +
                         (section == checkpoint.end()
                              ? std::string("is missing")
                              : "has " + std::to_string(section->second.size())));
    }
    std::ranges::copy(section->second, bytes.begin());
  }
  return Status::Ok();
}

// Two groups: with weight decay, and, if biases and norms are to have none, without.
std::vector<torch::optim::OptimizerParamGroup> MakeGroups(
    const std::vector<NamedTensor>& parameters, const TrainOptions& options) {
  std::vector<at::Tensor> decayed, rest;
  for (const NamedTensor& p : parameters) {
    (options.decay_1d || p.tensor.dim() > 1 ? decayed : rest).push_back(p.tensor);
  }
  const auto group = [&](std::vector<at::Tensor> tensors, double decay) {
    auto sgd = std::make_unique<torch::optim::SGDOptions>(options.learning_rate);
    sgd->momentum(options.momentum).weight_decay(decay).nesterov(options.nesterov);
    return torch::optim::OptimizerParamGroup(std::move(tensors), std::move(sgd));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  if (!decayed.empty()) groups.push_back(group(std::move(decayed), options.weight_decay));
  if (!rest.empty()) groups.push_back(group(std::move(rest), 0));
  return groups;
}

}  // namespace

Replica::Replica(std::shared_ptr<Model> model, const TrainOptions& options)
    : model_(std::move(model)) {
  for (const auto& p : model_->named_parameters()) parameters_.push_back({p.key(), p.value()});
  for (const auto& b : model_->named_buffers()) buffers_.push_back({b.key(), b.value()});
  optimizer_ = std::make_unique<torch::optim::SGD>(
      MakeGroups(parameters_, options), torch::optim::SGDOptions(options.learning_rate));
  if (options.momentum == 0) return;
  // Made here, all zero, instead of by the first step, so that it can be saved and sent always.
  for (const NamedTensor& p : parameters_) {
    auto state = std::make_unique<torch::optim::SGDParamState>();
    state->momentum_buffer(at::zeros_like(p.tensor));
    momentum_.push_back({p.name, state->momentum_buffer()});
    optimizer_->state()[p.tensor.unsafeGetTensorImpl()] = std::move(state);
  }
}

Replica::~Replica() = default;

void Replica::Step(double learning_rate) {
  for (auto& group : optimizer_->param_groups()) group.options().set_lr(learning_rate);
  optimizer_->step();
}

uint64_t Replica::Hash() const {
  uint64_t hash = 0;
  for (const NamedTensor& p : parameters_) hash = Mix64(hash ^ Crc32c(BytesOf(p.tensor)));
  return hash;
}

Status Replica::TakeOver(Communicator& comm) {
  EQ_RETURN_IF_ERROR(Broadcast(comm, parameters_));
  EQ_RETURN_IF_ERROR(Broadcast(comm, momentum_));
  return TakeOverBuffers(comm);
}

Status Replica::TakeOverBuffers(Communicator& comm) { return Broadcast(comm, buffers_); }

std::vector<uint8_t> Replica::CopyBuffers() const { return Concatenate(buffers_); }

void Replica::RestoreBuffers(std::span<const uint8_t> copy) { Scatter(copy, buffers_); }

void Replica::Save(Checkpoint* checkpoint) const {
  SaveAll("parameter/", parameters_, checkpoint);
  SaveAll("momentum/", momentum_, checkpoint);
  SaveAll("buffer/", buffers_, checkpoint);
}

Status Replica::Load(const Checkpoint& checkpoint) {
  EQ_RETURN_IF_ERROR(LoadAll("parameter/", parameters_, checkpoint));
  EQ_RETURN_IF_ERROR(LoadAll("momentum/", momentum_, checkpoint));
  return LoadAll("buffer/", buffers_, checkpoint);
}

void Replica::Drift() { BytesOf(parameters_.front().tensor)[0] ^= 1; }

}  // namespace elastiquant
