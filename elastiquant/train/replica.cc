#include "elastiquant/train/replica.h"

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/base/random.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/layers/bucket_plan.h"
#include "elastiquant/train/stored_tensor.h"

namespace elastiquant {
namespace {

const std::string kMomentumPrefix = std::string(kOptimizerPrefix) + "momentum.";

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

std::vector<NamedTensor> WithPrefix(const std::string& prefix,
                                    std::vector<NamedTensor> tensors) {
  for (NamedTensor& t : tensors) t.name = prefix + t.name;
  return tensors;
}

Status LoadAll(const std::vector<NamedTensor>& tensors, const Checkpoint& checkpoint) {
  for (const NamedTensor& t : tensors) {
    const auto stored = checkpoint.tensors.find(t.name);
    const std::string wanted = DescribeAsStored(t.tensor);
    const std::string found =
        stored == checkpoint.tensors.end() ? "missing" : stored->second.Describe();
    if (found != wanted) {
      return CorruptData("checkpoint: tensor " + t.name + " should be " + wanted + ", it is " +
                         found);
    }
    std::ranges::copy(stored->second.bytes, BytesOf(t.tensor).begin());
  }
  return Status::Ok();
}

double DecayOf(const at::Tensor& parameter, const TrainOptions& options) {
  return options.decay_1d || parameter.dim() > 1 ? options.weight_decay : 0;
}

// A group for each weight decay (biases and norms may have none) and each momentum.
std::vector<torch::optim::OptimizerParamGroup> MakeGroups(
    const std::vector<NamedTensor>& parameters, const TrainOptions& options,
    const std::vector<OwnMomentum>& momentum) {
  std::map<std::tuple<double, double, bool>, std::vector<at::Tensor>> members;
  for (size_t p = 0; p < parameters.size(); ++p) {
    const at::Tensor& tensor = parameters[p].tensor;
    members[{DecayOf(tensor, options), momentum[p].factor, momentum[p].nesterov}].push_back(
        tensor);
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

// The optimiser's, but that of a codec with momentum of its own for what it leaves exact.
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

std::vector<NamedTensor> ParametersOf(const Model& model) {
  std::vector<NamedTensor> parameters;
  for (const auto& p : model.named_parameters()) parameters.push_back({p.key(), p.value()});
  return parameters;
}

}  // namespace

Result<std::unique_ptr<Replica>> Replica::Make(std::shared_ptr<Model> model,
                                               const TrainOptions& options) {
  EQ_ASSIGN_OR_RETURN(const auto momentum,
                      MomentumByParameter(ShapesOf(ParametersOf(*model)), options));
  return std::unique_ptr<Replica>(new Replica(std::move(model), options, momentum));
}

Replica::Replica(std::shared_ptr<Model> model, const TrainOptions& options,
                 const std::vector<OwnMomentum>& momentum)
    : model_(std::move(model)), parameters_(ParametersOf(*model_)) {
  for (const auto& b : model_->named_buffers()) buffers_.push_back({b.key(), b.value()});
  TrainOptions of_optimizer = options;
  if (options.update == "powersgd") {  // whose gradient has the decay in it already
    for (const NamedTensor& p : parameters_) {
      powersgd_decay_.push_back(DecayOf(p.tensor, options));
    }
    of_optimizer.weight_decay = 0;
  }
  optimizer_ =
      std::make_unique<torch::optim::SGD>(MakeGroups(parameters_, of_optimizer, momentum),
                                          torch::optim::SGDOptions(options.learning_rate));
  // Made here, all zero, instead of by the first step, so that it can be saved and sent always.
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (momentum[i].factor == 0) continue;
    const NamedTensor& p = parameters_[i];
    auto state = std::make_unique<torch::optim::SGDParamState>();
    state->momentum_buffer(at::zeros_like(p.tensor));
    momentum_.push_back({p.name, state->momentum_buffer()});
    optimizer_->state()[p.tensor.unsafeGetTensorImpl()] = std::move(state);
  }
}

Replica::~Replica() = default;

void Replica::Step(double learning_rate) {
  const c10::NoGradGuard no_grad;
  // Of x -= lr (g + m) what the optimiser, which does x -= lr m, leaves out.
  for (size_t i = 0; i < powersgd_decay_.size(); ++i) {
    at::Tensor& p = parameters_[i].tensor;
    p.mutable_grad().add_(p, powersgd_decay_[i]);
    p.sub_(p.grad(), learning_rate);
  }
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

std::vector<NamedTensor> Replica::State() const {
  std::vector<NamedTensor> state = parameters_;
  state.insert(state.end(), buffers_.begin(), buffers_.end());
  return state;
}

void Replica::Save(Checkpoint* checkpoint) const {
  for (const auto& tensors : {State(), WithPrefix(kMomentumPrefix, momentum_)}) {
    for (const NamedTensor& t : tensors) checkpoint->tensors[t.name] = ToStored(t.tensor);
  }
}

Status Replica::Load(const Checkpoint& checkpoint) {
  EQ_RETURN_IF_ERROR(LoadAll(State(), checkpoint));
  return LoadAll(WithPrefix(kMomentumPrefix, momentum_), checkpoint);
}

void Replica::Drift() { BytesOf(parameters_.front().tensor)[0] ^= 1; }

}  // namespace elastiquant
