#include "elastiquant/ddp/gossip_engine.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/contains.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/layers/gossip_sections.h"
#include "elastiquant/layers/model_mean.h"
#include "elastiquant/protocol/gossip/doubt.h"

namespace elastiquant {

Result<std::unique_ptr<GossipEngine>> GossipEngine::Create(
    CommunicatorOptions communicator, bool goes_on, std::vector<ParameterShape> shapes,
    GossipOptions options, std::span<const at::Tensor> start, End end) {
  if (shapes.empty()) return InvalidArgument("the model has no parameters to train");
  SetModel(shapes, &options);
  std::unique_ptr<GossipEngine> engine(
      new GossipEngine(std::move(shapes), options, std::move(end)));
  EQ_RETURN_IF_ERROR(engine->Check(start));
  engine->rank_ = communicator.rank;
  engine->world_size_ = communicator.world_size;
  engine->start_.resize(options.elements);
  engine->moved_.resize(options.elements);
  engine->now_.resize(options.elements);
  engine->Read(start, &engine->start_);
  EQ_ASSIGN_OR_RETURN(engine->group_, EnduringGroup::Connect(std::move(communicator), goes_on));
  Communicator& comm = engine->group_->comm();
  EQ_RETURN_IF_ERROR(CheckSameGraph(&comm, *engine->graph_));
  EQ_ASSIGN_OR_RETURN(engine->exchange_, GossipExchange::Make(&comm, options, engine->start_));
  if (engine->group_->goes_on()) engine->exchange_->KeepMessages();
  engine->step_ = engine->exchange_->step();
  if (engine->rank_ == 0) engine->doubt_ = DoubtAbout(options);
  engine->neighbours_ = engine->graph_->senders(engine->rank_);
  comm.SetActivity("between two rounds");
  return engine;
}

GossipEngine::~GossipEngine() { Close("its script ended, or dropped the model", {}); }

Status GossipEngine::CheckOpen() const {
  if (group_ != nullptr) return {};
  return InvalidArgument("this was closed; make another one to go on");
}

Status GossipEngine::Check(std::span<const at::Tensor> tensors) const {
  if (tensors.size() != shapes_.size()) {
    return InvalidArgument("there are " + std::to_string(shapes_.size()) + " parameters, not " +
                           std::to_string(tensors.size()));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (static_cast<size_t>(tensors[i].numel()) == shapes_[i].elements) continue;
    return InvalidArgument("'" + shapes_[i].name +
                           "' has another size than when this was made");
  }
  return {};
}

std::vector<int> GossipEngine::neighbours() const {
  std::vector<int> there = neighbours_;
  const std::vector<int> gone = lost();
  std::erase_if(there, [&](int n) { return Contains(gone, n); });
  return there;
}

GraphParts GossipEngine::parts() const {
  std::vector<int> left(static_cast<size_t>(world_size_));
  std::iota(left.begin(), left.end(), 0);
  const std::vector<int> gone = lost();
  std::erase_if(left, [&](int n) { return Contains(gone, n); });
  return PartsOf(*graph_, std::move(left));
}

void GossipEngine::Read(std::span<const at::Tensor> tensors, std::vector<float>* values) const {
  auto out = values->begin();
  for (const at::Tensor& tensor : tensors) {
    const auto* data = tensor.data_ptr<float>();
    out = std::copy(data, data + tensor.numel(), out);
  }
}

void GossipEngine::Write(const std::vector<float>& values,
                         std::span<const at::Tensor> tensors) const {
  const float* in = values.data();
  for (const at::Tensor& tensor : tensors) {
    std::copy(in, in + tensor.numel(), tensor.data_ptr<float>());
    in += tensor.numel();
  }
}

Status GossipEngine::Begin(std::span<const at::Tensor> weights) {
  EQ_RETURN_IF_ERROR(CheckOpen());
  if (!weights.empty()) EQ_RETURN_IF_ERROR(Check(weights));
  if (has_begun_) return {};
  EQ_RETURN_IF_ERROR(Persist([this] { return exchange_->Begin(); }));
  has_begun_ = true;
  if (!weights.empty()) CatchUp(weights);
  return {};
}

Status GossipEngine::Finish(std::span<const at::Tensor> weights, bool* moved) {
  EQ_RETURN_IF_ERROR(CheckOpen());
  EQ_RETURN_IF_ERROR(Check(weights));
  if (!has_begun_) return InvalidArgument("no round has begun");
  Read(weights, &moved_);
  *moved = AllFinite(moved_);
  for (size_t e = 0; e < moved_.size(); ++e) moved_[e] = *moved ? moved_[e] - start_[e] : 0;
  EQ_RETURN_IF_ERROR(Persist([this] { return exchange_->Finish(moved_); }));
  has_begun_ = false;
  group_->comm().SetActivity("between two rounds");
  const uint64_t values = moved_.size();
  ReducerStats stats = exchange_->TakeStats();
  stats.coordinates = values;
  counter_.CountStep({values, sizeof(float) * values, group_->comm().world_size()}, {}, stats);
  exchange_->CopyWeights(start_);
  Write(start_, weights);
  return {};
}

Status GossipEngine::CheckBetweenRounds(std::span<const at::Tensor> weights) const {
  EQ_RETURN_IF_ERROR(CheckOpen());
  EQ_RETURN_IF_ERROR(Check(weights));
  if (!has_begun_) return {};
  return InvalidArgument("a round is under way: take the optimiser's step first");
}

Status GossipEngine::Pause(std::span<const at::Tensor> weights) {
  EQ_RETURN_IF_ERROR(CheckBetweenRounds(weights));
  EQ_RETURN_IF_ERROR(PauseTogether("paused"));
  CatchUp(weights);
  return {};
}

// Other workers may have moved this worker's weights since start_, and so may the optimiser, or
// whatever else the script moves them with. Where only one of the two has, the weights become
// what that one has made of them, to the bit.
void GossipEngine::CatchUp(std::span<const at::Tensor> weights) {
  Read(weights, &moved_);
  exchange_->CopyWeights(now_);
  for (size_t e = 0; e < now_.size(); ++e) {
    if (moved_[e] == start_[e]) {
      moved_[e] = now_[e];
    } else if (now_[e] != start_[e]) {
      moved_[e] = now_[e] + (moved_[e] - start_[e]);
    }
  }
  std::swap(start_, now_);
  Write(moved_, weights);
}

Result<std::string> GossipEngine::OddReplicas() {
  EQ_RETURN_IF_ERROR(CheckOpen());
  EQ_ASSIGN_OR_RETURN(const std::vector<uint8_t> agreed,
                      group_->Agree(Ties(), [this]() -> Result<std::vector<uint8_t>> {
                        EQ_ASSIGN_OR_RETURN(const std::string odd, exchange_->OddReplicas());
                        return std::vector<uint8_t>(odd.begin(), odd.end());
                      }));
  return std::string(agreed.begin(), agreed.end());
}

Result<double> GossipEngine::Average(std::span<const at::Tensor> tensors) {
  EQ_RETURN_IF_ERROR(CheckOpen());
  size_t size = 0;
  for (const at::Tensor& tensor : tensors) size += static_cast<size_t>(tensor.numel());
  std::vector<float> own(size);
  Read(tensors, &own);
  EQ_ASSIGN_OR_RETURN(
      const std::vector<uint8_t> agreed,
      group_->Agree(Ties(), [&]() -> Result<std::vector<uint8_t>> {
        EQ_ASSIGN_OR_RETURN(const ModelMean mean, MeanOfModels(&group_->comm(), own));
        std::vector<uint8_t> bytes = BytesOf(std::span(mean.values));
        const std::vector<uint8_t> distance = BytesOf(std::span(&mean.distance, 1));
        bytes.insert(bytes.end(), distance.begin(), distance.end());
        return bytes;
      }));
  const size_t mean_bytes = size * sizeof(float);
  double distance = 0;
  if (agreed.size() != mean_bytes + sizeof(distance)) {
    return Internal("another worker's mean has another size");
  }
  std::memcpy(own.data(), agreed.data(), mean_bytes);
  std::memcpy(&distance, agreed.data() + mean_bytes, sizeof(distance));
  Write(own, tensors);
  return distance;
}

EnduringGroup::Ties GossipEngine::Ties() {
  return {.leave = [this] { exchange_->Leave(); },
          .join = [this](const std::vector<int>& workers) -> Status {
            EQ_RETURN_IF_ERROR(exchange_->CheckThoseLeft(workers));
            return exchange_->Join(workers, {});
          }};
}

// Goes on without lost workers, if it may.
Status GossipEngine::Persist(const std::function<Status()>& act) {
  return group_->Persist(Ties(), act);
}

// In AD-PSGD nobody goes on before all have paused: whoever serves still would answer its next
// round, of which the others that pause know nothing, or take its next pause for this one.
Status GossipEngine::PauseTogether(std::string_view done) {
  EQ_RETURN_IF_ERROR(exchange_->Open());
  EQ_RETURN_IF_ERROR(Persist([&] { return exchange_->Pause(done); }));
  if (has_rounds()) return {};
  // Whoever is left behind by a loss learns from those that have gone on that all had paused.
  return group_
      ->Agree(Ties(),
              [this]() -> Result<EnduringGroup::Bytes> {
                EQ_RETURN_IF_ERROR(group_->comm().Barrier());
                return EnduringGroup::Bytes();
              })
      .status();
}

DdpStats GossipEngine::stats() {
  return counter_.Since(group_ ? group_->comm().traffic() : final_traffic_);
}

void GossipEngine::ResetStats() {
  counter_.Reset(group_ ? group_->comm().traffic() : final_traffic_);
}

StateIdentity GossipEngine::Identity() const {
  const std::vector<std::string> specs(shapes_.size(), spec_);
  return MakeStateIdentity(rank_, world_size_, shapes_, specs);
}

Result<Sections> GossipEngine::SaveState(std::span<const at::Tensor> weights) {
  EQ_RETURN_IF_ERROR(CheckBetweenRounds(weights));
  if (has_rounds()) {
    EQ_RETURN_IF_ERROR(Persist([this] { return exchange_->TakeOwed(); }));
  } else {
    EQ_RETURN_IF_ERROR(Pause(weights));
  }
  EQ_ASSIGN_OR_RETURN(const GossipState state, exchange_->Save());
  Sections sections = SectionsOfGossip(state);
  if (const uint64_t count = lost().size(); count > 0)
    sections[kLostSection] = SectionOf(count);
  sections[kIdentitySection] = IdentitySection(Identity());
  return sections;
}

Status GossipEngine::LoadState(Sections sections) {
  EQ_RETURN_IF_ERROR(CheckOpen());
  if (has_begun_) return InvalidArgument("a round is under way: load before the first forward");
  // Of AD-PSGD, nobody has asked for anything yet if no round was made.
  if (has_rounds() || exchange_->rounds() > 0) {
    EQ_RETURN_IF_ERROR(PauseTogether("loaded a state"));
  }
  EQ_RETURN_IF_ERROR(TakeIdentity(Identity(), &sections));
  if (sections.contains(kLostSection)) {
    return CorruptData(
        "the state was saved when workers had been lost, whom a new group would have to take "
        "back: begin with the saved weights instead, and load no state of Gossip");
  }
  if (!lost().empty()) {
    return InvalidArgument(
        "workers have been lost, and a state is of all: begin with the saved weights in a new "
        "group, and load no state of Gossip");
  }
  EQ_ASSIGN_OR_RETURN(const GossipState state, ReadGossip(sections));
  const Status status = exchange_->Load(state);
  if (!status.ok()) return CorruptData(status.message());
  exchange_->CopyWeights(start_);
  return {};
}

void GossipEngine::Close(const std::string& farewell, const Status& error) {
  if (group_ == nullptr) return;
  group_->comm().SetFarewell(farewell);
  if (exchange_ != nullptr || !error.ok()) Leave(farewell, error);
  exchange_.reset();
  final_traffic_ = group_->comm().traffic();
  if (end_) end_(std::move(group_));
  group_.reset();
}

void GossipEngine::Leave(const std::string& farewell, const Status& error) {
  Communicator& comm = group_->comm();
  if (!error.ok()) return comm.Abort(error);
  if (has_begun_ || !exchange_->is_paused()) {
    return comm.Abort(
        Internal(farewell + (has_begun_ ? " within a round" : " without a pause")));
  }
  // Takes what is owed, so that nobody has to wait to be rid of it.
  const Status paused = exchange_->Pause("left (" + farewell + ")");
  // Whoever is further than this one learns that it is gone.
  if (!paused.ok() && group_->goes_on()) comm.Abort(Internal(farewell));
}

}  // namespace elastiquant
