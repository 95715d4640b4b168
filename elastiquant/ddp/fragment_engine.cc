#include "elastiquant/ddp/fragment_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "elastiquant/base/bytes.h"
#include "elastiquant/codec/registry.h"

namespace elastiquant {
namespace {

std::span<float> FloatsOf(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

// What workers agree on in a round: kMean and the mean, or kSkipped and why there is none.
constexpr uint8_t kMean = 0, kSkipped = 1;

std::vector<uint8_t> BytesOfMean(const std::vector<std::span<float>>& mean) {
  size_t size = 1;
  for (const std::span<float> values : mean) size += values.size_bytes();
  std::vector<uint8_t> bytes(size, kMean);
  ByteWriter writer(bytes);
  (void)writer.Write(kMean);
  for (const std::span<float> values : mean) {
    (void)writer.WriteSpan(
        {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()});
  }
  return bytes;
}

std::vector<uint8_t> BytesOfReason(const std::string& reason) {
  std::vector<uint8_t> bytes(1 + reason.size(), kSkipped);
  std::ranges::copy(reason, bytes.begin() + 1);
  return bytes;
}

}  // namespace

Result<std::unique_ptr<FragmentEngine>> FragmentEngine::Create(
    CommunicatorOptions communicator, bool goes_on, std::vector<ParameterShape> shapes,
    FragmentOptions options, End end) {
  if (shapes.empty()) return InvalidArgument("the model has no parameters to train");
  if (goes_on) EQ_RETURN_IF_ERROR(CheckGoesOn(options.codec));
  std::unique_ptr<FragmentEngine> engine(
      new FragmentEngine(std::move(shapes), std::move(options), std::move(end)));
  engine->rank_ = communicator.rank;
  engine->world_size_ = communicator.world_size;
  EQ_ASSIGN_OR_RETURN(engine->group_, EnduringGroup::Connect(std::move(communicator), goes_on));
  EQ_ASSIGN_OR_RETURN(
      engine->reduction_,
      FragmentReduction::Make(&engine->group_->comm(), engine->shapes_, engine->options_));
  engine->specs_ = engine->reduction_->SpecsByParameter();
  engine->exchange_ = engine->reduction_->exchange();
  engine->group_->comm().SetActivity("between two rounds");
  return engine;
}

Status FragmentEngine::CheckGoesOn(const std::string& codec) {
  EQ_ASSIGN_OR_RETURN(const auto made, MakeCodec(codec));
  if (made->exchange() != Exchange::kFactors) return {};
  return InvalidArgument("codec '" + made->spec() +
                         "' remembers what must be alike on all workers, which a loss can "
                         "undo: go on with another codec");
}

FragmentEngine::~FragmentEngine() { Close("its script ended, or dropped the model", {}); }

Status FragmentEngine::CheckOpen() const {
  if (group_ == nullptr) {
    return InvalidArgument("this was closed; make another one to go on averaging");
  }
  if (reduction_ != nullptr) return {};
  return Unavailable("this worker could not go on with the others, and averages no more");
}

// Where the values of a fragment's tensors are.
Result<std::vector<std::span<float>>> FragmentEngine::Places(size_t fragment) {
  EQ_RETURN_IF_ERROR(CheckOpen());
  std::vector<std::span<float>> places;
  for (const size_t p : reduction_->members(fragment)) {
    places.push_back(reduction_->values(p));
  }
  if (fragment == 0 && options_.scalars > 0) places.push_back(reduction_->scalars());
  return places;
}

// Tensors must be as large.
Result<std::vector<std::span<float>>> FragmentEngine::Places(
    size_t fragment, std::span<const at::Tensor> tensors) {
  EQ_ASSIGN_OR_RETURN(std::vector<std::span<float>> places, Places(fragment));
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
  if (group_->goes_on()) {
    if (sent_) return InvalidArgument("a mean is under way, which must be finished first");
    sent_ = Sent{.round = round, .values = {}};
    for (const at::Tensor& tensor : tensors) {
      const std::span<const float> values = FloatsOf(tensor);
      sent_->values.emplace_back(values.begin(), values.end());
    }
    return {};
  }
  for (size_t i = 0; i < places.size(); ++i) {
    std::ranges::copy(FloatsOf(tensors[i]), places[i].begin());
  }
  return reduction_->Begin(fragment, round);
}

uint64_t FragmentEngine::ValuesOf(size_t fragment) const {
  uint64_t values = fragment == 0 ? options_.scalars : 0;
  for (const size_t p : reduction_->members(fragment)) values += shapes_[p].elements;
  return values;
}

Result<StepOutcome> FragmentEngine::Finish(size_t fragment,
                                           std::span<const at::Tensor> tensors) {
  EQ_RETURN_IF_ERROR(Places(fragment, tensors).status());
  group_->comm().SetActivity("waiting for a round's mean");
  EQ_ASSIGN_OR_RETURN(StepOutcome outcome,
                      group_->goes_on() ? Average(fragment) : reduction_->Finish(fragment));
  group_->comm().SetActivity("between two rounds");
  const uint64_t values = ValuesOf(fragment);
  ReducerStats spent = std::exchange(spent_, {});
  spent += reduction_->TakeStats();
  counter_.CountStep({values, sizeof(float) * values, group_->comm().world_size()}, outcome,
                     spent);
  if (outcome.skipped) return outcome;
  // Found only now, because a new group brings a new reduction.
  EQ_ASSIGN_OR_RETURN(const std::vector<std::span<float>> places, Places(fragment, tensors));
  for (size_t i = 0; i < places.size(); ++i) {
    std::ranges::copy(places[i], FloatsOf(tensors[i]).begin());
  }
  return outcome;
}

// Going on without lost workers.

// What was begun is made again in the next group, if some worker has not come to its end.
Result<StepOutcome> FragmentEngine::Average(size_t fragment) {
  if (!sent_) return InvalidArgument("no mean is under way");
  EQ_ASSIGN_OR_RETURN(const EnduringGroup::Bytes bytes,
                      group_->Agree(Ties(), [&] { return MakeMean(fragment); }));
  sent_.reset();
  EQ_ASSIGN_OR_RETURN(StepOutcome outcome, TakeMean(fragment, bytes));
  // If the average did not come to its end here, the mean is another worker's, and this
  // worker's part is in it.
  const std::optional<Sections> memory = std::exchange(if_agreed_, std::nullopt);
  if (memory && !outcome.skipped) {
    EQ_RETURN_IF_ERROR(reduction_->LoadMemory(fragment, *memory));
  }
  return outcome;
}

// Returns a fragment's mean, float by float, or why there is none.
Result<EnduringGroup::Bytes> FragmentEngine::MakeMean(size_t fragment) {
  EQ_ASSIGN_OR_RETURN(const std::vector<std::span<float>> places, Places(fragment));
  for (size_t i = 0; i < places.size(); ++i) {
    std::ranges::copy(sent_->values[i], places[i].begin());
  }
  if_agreed_.reset();
  unfinished_ = fragment;
  EQ_RETURN_IF_ERROR(reduction_->Begin(fragment, sent_->round));
  EQ_ASSIGN_OR_RETURN(const StepOutcome outcome, reduction_->Finish(fragment));
  unfinished_.reset();
  return outcome.skipped ? BytesOfReason(outcome.reason) : BytesOfMean(places);
}

Result<StepOutcome> FragmentEngine::TakeMean(size_t fragment, std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  uint8_t kind = kMean;
  bool is_whole = reader.Read(&kind);
  if (is_whole && kind == kSkipped) {
    const auto reason = bytes.subspan(1);
    return StepOutcome{true, {reason.begin(), reason.end()}};
  }
  EQ_ASSIGN_OR_RETURN(const std::vector<std::span<float>> places, Places(fragment));
  for (const std::span<float> place : places) {
    std::span<const uint8_t> values;
    is_whole = is_whole && reader.ReadSpan(place.size_bytes(), &values);
    if (is_whole) std::memcpy(place.data(), values.data(), values.size());
  }
  if (is_whole && reader.remaining() == 0) return StepOutcome();
  return Internal("another worker's mean has another size");
}

EnduringGroup::Ties FragmentEngine::Ties() {
  return {.leave = [this] { LeaveGroup(); },
          .join = [this](const std::vector<int>& workers) { return JoinGroup(workers); }};
}

void FragmentEngine::LeaveGroup() {
  if (reduction_ == nullptr) return;
  for (size_t f = 0; f < reduction_->fragments(); ++f) {
    if (reduction_->is_under_way(f)) (void)reduction_->Finish(f);
  }
  if (const auto fragment = std::exchange(unfinished_, std::nullopt)) {
    if_agreed_ = reduction_->TakeBackMemory(*fragment, /*has_come=*/false);
  }
  memory_.clear();
  reduction_->SaveMemory(&memory_);
  measured_ = reduction_->certificate().SaveState();
  spent_ += reduction_->TakeStats();
  reduction_.reset();
}

Status FragmentEngine::JoinGroup(const std::vector<int>& workers) {
  FragmentOptions options = options_;
  std::vector<double>& weights = options.reducer.weights;
  if (!weights.empty()) {
    weights.clear();
    for (const int w : workers) {
      weights.push_back(options_.reducer.weights[static_cast<size_t>(w)]);
    }
  }
  EQ_ASSIGN_OR_RETURN(reduction_,
                      FragmentReduction::Make(&group_->comm(), shapes_, std::move(options)));
  EQ_RETURN_IF_ERROR(reduction_->LoadMemory(memory_));
  return reduction_->certificate().LoadState(measured_);
}

DdpStats FragmentEngine::stats() {
  return counter_.Since(group_ ? group_->comm().traffic() : final_traffic_);
}

void FragmentEngine::ResetStats() {
  counter_.Reset(group_ ? group_->comm().traffic() : final_traffic_);
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
  Sections sections = group_ ? memory_ : final_memory_;
  if (reduction_ != nullptr) {
    sections.clear();
    reduction_->SaveMemory(&sections);
  }
  if (const uint64_t count = lost().size(); count > 0) {
    sections[kLostSection] = SectionOf(count);
  }
  sections[kIdentitySection] = IdentitySection(Identity());
  return sections;
}

Status FragmentEngine::LoadState(Sections sections) {
  EQ_RETURN_IF_ERROR(CheckOpen());
  EQ_RETURN_IF_ERROR(TakeIdentity(Identity(), &sections));
  if (sections.contains(kLostSection)) {
    return CorruptData(
        "the state was saved when workers had been lost, whose own states are older: begin with"
        " the saved weights instead, and load no state of the rounds");
  }
  return reduction_->LoadMemory(sections);
}

void FragmentEngine::Close(const std::string& farewell, const Status& error) {
  if (group_ == nullptr) return;
  Communicator& comm = group_->comm();
  comm.SetFarewell(farewell);
  bool is_under_way = sent_.has_value();
  for (size_t f = 0; reduction_ != nullptr && f < reduction_->fragments(); ++f) {
    is_under_way |= reduction_->is_under_way(f);
  }
  if (!error.ok()) {
    comm.Abort(error);
  } else if (is_under_way) {  // the others wait for the rest of it
    comm.Abort(Internal(farewell + " within a round"));
  }
  final_memory_ = std::move(memory_);
  if (reduction_ != nullptr) {
    final_layers_ = Layers();
    final_memory_.clear();
    if (!is_under_way) reduction_->SaveMemory(&final_memory_);
  }
  reduction_.reset();
  final_traffic_ = comm.traffic();
  if (end_) end_(std::move(group_));
  group_.reset();
}

}  // namespace elastiquant
