#include "elastiquant/train/replica.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/base/random.h"
#include "elastiquant/train/stored_tensor.h"

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

void SaveAll(const std::vector<NamedTensor>& tensors, Checkpoint* checkpoint) {
  for (const NamedTensor& t : tensors) checkpoint->tensors[t.name] = ToStored(t.tensor);
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

std::vector<NamedTensor> ParametersOf(const Model& model) {
  std::vector<NamedTensor> parameters;
  for (const auto& p : model.named_parameters()) parameters.push_back({p.key(), p.value()});
  return parameters;
}

}  // namespace

Result<std::unique_ptr<Replica>> Replica::Make(std::shared_ptr<Model> model,
                                               const TrainOptions& options) {
  EQ_ASSIGN_OR_RETURN(auto optimizer, MakeOptimizer(ParametersOf(*model), options));
  return std::unique_ptr<Replica>(new Replica(std::move(model), std::move(optimizer)));
}

Replica::Replica(std::shared_ptr<Model> model, std::unique_ptr<Optimizer> optimizer)
    : model_(std::move(model)),
      parameters_(ParametersOf(*model_)),
      optimizer_(std::move(optimizer)) {
  for (const auto& b : model_->named_buffers()) buffers_.push_back({b.key(), b.value()});
}

SecondMoments Replica::second_moments() const {
  SecondMoments moments;
  for (const at::Tensor& t : optimizer_->second_moments()) {
    moments.emplace_back(t.const_data_ptr<float>(), static_cast<size_t>(t.numel()));
  }
  return moments;
}

uint64_t Replica::Hash() const {
  uint64_t hash = 0;
  for (const NamedTensor& p : parameters_) hash = Mix64(hash ^ Crc32c(BytesOf(p.tensor)));
  return hash;
}

Status Replica::TakeOver(Communicator& comm) {
  EQ_RETURN_IF_ERROR(Broadcast(comm, parameters_));
  EQ_RETURN_IF_ERROR(Broadcast(comm, optimizer_->state()));
  return TakeOverBuffers(comm);
}

Status Replica::TakeOverBuffers(Communicator& comm) { return Broadcast(comm, buffers_); }

// In rank order and in doubles, so that all workers get the same bits.
Status Replica::AverageBuffers(Communicator& comm, const std::vector<double>& weights) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<at::Tensor> mean, square;  // by buffer: of values, and of their squares
  const std::vector<uint8_t> own = CopyBuffers();
  std::vector<uint8_t> first;  // worker 0's
  for (int rank = 0; rank < comm.world_size(); ++rank) {
    const double share =
        weights.empty() ? 1.0 / comm.world_size() : weights[static_cast<size_t>(rank)] / all;
    std::vector<uint8_t> theirs = own;
    const Status received = comm.Broadcast(rank, theirs);
    if (!received.ok()) {  // the worker may go on without the lost one
      Scatter(own, buffers_);
      return received;
    }
    Scatter(theirs, buffers_);
    for (size_t b = 0; b < buffers_.size(); ++b) {
      const at::Tensor values = buffers_[b].tensor.to(at::kDouble);
      if (rank == 0) {
        mean.push_back(values * share);
        square.push_back(values * values * share);
      } else {
        mean[b].add_(values * share);
        square[b].add_(values * values * share);
      }
    }
    if (rank == 0) first = std::move(theirs);
  }
  Scatter(first, buffers_);
  constexpr std::string_view kMean = "running_mean", kVariance = "running_var";
  for (size_t b = 0; b < buffers_.size(); ++b) {
    at::Tensor& tensor = buffers_[b].tensor;
    if (!tensor.is_floating_point()) continue;
    tensor.copy_(mean[b]);
    // The statistics of one layer lie behind each other.
    if (!buffers_[b].name.ends_with(kVariance) || b == 0) continue;
    if (!buffers_[b - 1].name.ends_with(kMean)) continue;
    const at::Tensor between = square[b - 1] - mean[b - 1] * mean[b - 1];
    tensor.copy_(mean[b] + between.clamp_min(0));  // rounding can leave less than nothing
  }
  return {};
}

std::vector<uint8_t> Replica::CopyOptimizer() const { return Concatenate(optimizer_->state()); }

void Replica::RestoreOptimizer(std::span<const uint8_t> copy) {
  Scatter(copy, optimizer_->state());
}

std::vector<uint8_t> Replica::CopyBuffers() const { return Concatenate(buffers_); }

void Replica::RestoreBuffers(std::span<const uint8_t> copy) { Scatter(copy, buffers_); }

std::vector<NamedTensor> Replica::State() const {
  std::vector<NamedTensor> state = parameters_;
  state.insert(state.end(), buffers_.begin(), buffers_.end());
  return state;
}

void Replica::Save(Checkpoint* checkpoint) const {
  SaveAll(State(), checkpoint);
  SaveAll(optimizer_->state(), checkpoint);
}

void Replica::SaveOwn(Checkpoint* checkpoint) const {
  SaveAll(optimizer_->own_state(), checkpoint);
  SaveAll(buffers_, checkpoint);
}

Status Replica::Load(const Checkpoint& checkpoint) {
  EQ_RETURN_IF_ERROR(LoadAll(State(), checkpoint));
  return LoadAll(optimizer_->state(), checkpoint);
}

Status Replica::LoadOwn(const Checkpoint& checkpoint) {
  EQ_RETURN_IF_ERROR(LoadAll(optimizer_->own_state(), checkpoint));
  const bool has_them = !buffers_.empty() && checkpoint.tensors.contains(buffers_.front().name);
  return has_them ? LoadAll(buffers_, checkpoint) : Status::Ok();
}

void Replica::Drift() { BytesOf(parameters_.front().tensor)[0] ^= 1; }

}  // namespace elastiquant
