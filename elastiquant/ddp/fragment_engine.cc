#include "elastiquant/ddp/fragment_engine.h"

#include <algorithm>
#include <utility>

namespace elastiquant {
namespace {

constexpr char kWhoseSection[] = "identity";

std::span<float> FloatsOf(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

Result<std::unique_ptr<FragmentEngine>> FragmentEngine::Create(
    CommunicatorOptions communicator, std::vector<ParameterShape> shapes,
    FragmentOptions options, End end) {
  if (shapes.empty()) return InvalidArgument("the model has no parameters to train");
  std::unique_ptr<FragmentEngine> engine(
      new FragmentEngine(std::move(shapes), options.scalars, std::move(end)));
  communicator.on_peer_lost = [](const Status&) {};  // waits then end with the verdict
  EQ_ASSIGN_OR_RETURN(engine->comm_, Communicator::Connect(communicator));
  engine->rank_ = communicator.rank;
  engine->world_size_ = communicator.world_size;
  EQ_ASSIGN_OR_RETURN(
      engine->reduction_,
      FragmentReduction::Make(engine->comm_.get(), engine->shapes_, std::move(options)));
  engine->specs_ = engine->reduction_->SpecsByParameter();
  engine->exchange_ = engine->reduction_->exchange();
  engine->comm_->SetActivity("between two rounds");
  return engine;
}

FragmentEngine::~FragmentEngine() { Close("its script ended, or dropped the model", {}); }

Status FragmentEngine::CheckOpen() const {
  if (comm_ != nullptr) return {};
  return InvalidArgument("this was closed; make another one to go on averaging");
}

Result<std::vector<std::span<float>>> FragmentEngine::Places(
    size_t fragment, std::span<const at::Tensor> tensors) {
  EQ_RETURN_IF_ERROR(CheckOpen());
  std::vector<std::span<float>> places;
  for (const size_t p : reduction_->members(fragment)) {
    places.push_back(reduction_->values(p));
  }
  if (fragment == 0 && scalars_ > 0) places.push_back(reduction_->scalars());
  if (places.size() != tensors.size()) {
    return InvalidArgument("fragment " + std::to_string(fragment) + " has " +
                           std::to_string(places.size()) + " tensors, not " +
                           std::to_string(tensors.size()));
  }
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].size() == static_cast<size_t>(tensors[i].numel())) continue;
    return InvalidArgument("a tensor of fragment " + std::to_string(fragment) +
                           " has another size than when this was made");
  }
  return places;
}

Status FragmentEngine::Begin(size_t fragment, uint64_t round,
                             std::span<const at::Tensor> tensors) {
  EQ_ASSIGN_OR_RETURN(const std::vector<std::span<float>> places, Places(fragment, tensors));
  for (size_t i = 0; i < places.size(); ++i) {
    std::ranges::copy(FloatsOf(tensors[i]), places[i].begin());
  }
  return reduction_->Begin(fragment, round);
}

uint64_t FragmentEngine::ValuesOf(size_t fragment) const {
  uint64_t values = fragment == 0 ? scalars_ : 0;
  for (const size_t p : reduction_->members(fragment)) values += shapes_[p].elements;
  return values;
}

Result<StepOutcome> FragmentEngine::Finish(size_t fragment,
                                           std::span<const at::Tensor> tensors) {
  EQ_ASSIGN_OR_RETURN(const std::vector<std::span<float>> places, Places(fragment, tensors));
  comm_->SetActivity("waiting for a round's mean");
  EQ_ASSIGN_OR_RETURN(StepOutcome outcome, reduction_->Finish(fragment));
  comm_->SetActivity("between two rounds");
  const uint64_t values = ValuesOf(fragment);
  counter_.CountStep({values, sizeof(float) * values, world_size_}, outcome,
                     reduction_->TakeStats());
  if (outcome.skipped) return outcome;
  for (size_t i = 0; i < places.size(); ++i) {
    std::ranges::copy(places[i], FloatsOf(tensors[i]).begin());
  }
  return outcome;
}

DdpStats FragmentEngine::stats() {
  return counter_.Since(comm_ != nullptr ? comm_->traffic() : final_traffic_);
}

void FragmentEngine::ResetStats() {
  counter_.Reset(comm_ != nullptr ? comm_->traffic() : final_traffic_);
  final_layers_.clear();
  if (reduction_ != nullptr) reduction_->certificate().Forget();
}

std::vector<nlohmann::json> FragmentEngine::Layers() {
  if (reduction_ == nullptr) return final_layers_;
  return reduction_->certificate().Lines(0, 0);
}

StateIdentity FragmentEngine::Identity() const {
  return MakeStateIdentity(rank_, world_size_, shapes_, specs_);
}

Result<Sections> FragmentEngine::SaveState() const {
  Sections sections = final_memory_;
  if (reduction_ != nullptr) reduction_->SaveMemory(&sections);
  sections[kWhoseSection] = IdentitySection(Identity());
  return sections;
}

Status FragmentEngine::LoadState(Sections sections) {
  EQ_RETURN_IF_ERROR(CheckOpen());
  const auto identity = sections.extract(kWhoseSection);
  if (identity.empty()) {
    return CorruptData("section identity is missing: nothing tells whose state it is");
  }
  EQ_RETURN_IF_ERROR(CheckIdentity(identity.mapped(), Identity()));
  return reduction_->LoadMemory(sections);
}

void FragmentEngine::Close(const std::string& farewell, const Status& error) {
  if (comm_ == nullptr) return;
  comm_->SetFarewell(farewell);
  bool is_under_way = false;
  for (size_t f = 0; reduction_ != nullptr && f < reduction_->fragments(); ++f) {
    is_under_way |= reduction_->is_under_way(f);
  }
  if (!error.ok()) {
    comm_->Abort(error);
  } else if (is_under_way) {  // the others wait for the rest of it
    comm_->Abort(Internal(farewell + " within a round"));
  }
  if (reduction_ != nullptr) {
    final_layers_ = Layers();
    if (!is_under_way) reduction_->SaveMemory(&final_memory_);
  }
  reduction_.reset();
  final_traffic_ = comm_->traffic();
  if (end_) {
    end_(std::move(comm_));
  }
  comm_.reset();
}

}  // namespace elastiquant
