#include "elastiquant/train/runners/delayed_runner.h"

#include <algorithm>
#include <utility>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/train/own_state.h"

namespace elastiquant {
namespace {

// Sections of a worker's checkpoint.
constexpr char kField[] = "delayed/";     // then the field of DelayedSteps, and a number
constexpr char kMeanOf[] = "mean/";       // then the slot, and the parameter
constexpr char kSkipOf[] = "mean-lost/";  // then the slot: what was wrong
constexpr char kUnderWay[] = "under-way";

// The keys of what is sent at the end of a run. They are apart from those of regular rounds,
// because a run that is made longer goes on with a regular round of the same number.
constexpr uint64_t kKeysOfEnd = uint64_t{1} << 62;

}  // namespace

DelayedRunner::DelayedRunner(const TrainOptions& options, const RunnerPlace& place)
    : options_(options),
      comm_(place.comm),
      replica_(place.replica),
      total_steps_(place.total_steps),
      weights_(place.weights) {}

Result<std::unique_ptr<Runner>> DelayedRunner::Make(const TrainOptions& options,
                                                    const RunnerPlace& place) {
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(options.algorithm));
  std::unique_ptr<DelayedRunner> runner(new DelayedRunner(options, place));
  EQ_RETURN_IF_ERROR(runner->MakeMachine(place, algorithm));
  EQ_RETURN_IF_ERROR(runner->MakeSlots());
  return std::unique_ptr<Runner>(std::move(runner));
}

Status DelayedRunner::MakeMachine(const RunnerPlace& place, const Algorithm& algorithm) {
  shapes_ = ShapesOf(replica_->parameters());
  EQ_ASSIGN_OR_RETURN(pass_, BackwardPass::MakeForOwn(options_, place));
  DelayedSteps::Optimiser optimiser{
      .step = [this](const DelayedSteps::Values& gradient) { StepBy(gradient); },
      .save = [this] { kept_ = replica_->CopyOptimizer(); },
      .restore = [this] { replica_->RestoreOptimizer(kept_); }};
  EQ_ASSIGN_OR_RETURN(DelayedSteps machine,
                      DelayedSteps::Make({.every = RoundOf(options_), .delay = algorithm.delay},
                                         SpansOf(*replica_), std::move(optimiser)));
  machine_.emplace(std::move(machine));
  return {};
}

Status DelayedRunner::MakeSlots() {
  FragmentOptions fragments = FragmentOptionsOf(options_, weights_);
  fragments.fragments.assign(shapes_.size(), 0);
  for (int64_t s = 0; s < machine_->MostUnderWay(); ++s) {
    fragments.reducer.channel = static_cast<uint32_t>(s);
    fragments.certificate = s == 0 ? nullptr : &slots_[0].reduction->certificate();
    EQ_ASSIGN_OR_RETURN(auto reduction, FragmentReduction::Make(comm_, shapes_, fragments));
    slots_.push_back({std::move(reduction), std::nullopt});
  }
  counted_ = comm_->traffic();
  return {};
}

// Called by the machine, with the weights that shall move in the replica.
void DelayedRunner::StepBy(const DelayedSteps::Values& gradient) {
  for (size_t p = 0; p < gradient.size(); ++p) {
    const at::Tensor& grad = replica_->parameters()[p].tensor.grad();
    std::ranges::copy(gradient[p], grad.data_ptr<float>());
  }
  pass_->gradients().ClipNorm(options_.clip_norm);
  replica_->optimizer().Step(learning_rate_);
}

Status DelayedRunner::Send(int64_t round, uint64_t key) {
  Slot& slot = SlotOf(round);
  const DelayedSteps::Values& sent = machine_->Send();
  for (size_t p = 0; p < sent.size(); ++p) {
    std::ranges::copy(sent[p], slot.reduction->values(p).begin());
  }
  ++rounds_;
  return slot.reduction->Begin(0, key);
}

Status DelayedRunner::Arrive(Slot* slot) {
  if (slot->arrived) return {};
  EQ_ASSIGN_OR_RETURN(slot->arrived, slot->reduction->Finish(0));
  return {};
}

Result<StepOutcome> DelayedRunner::Apply(int64_t round) {
  Slot& slot = SlotOf(round);
  comm_->SetActivity("waiting for a delayed mean");
  EQ_RETURN_IF_ERROR(Arrive(&slot));
  const StepOutcome outcome = *std::exchange(slot.arrived, std::nullopt);
  if (outcome.skipped) {
    machine_->Apply(nullptr);
    return outcome;
  }
  DelayedSteps::Values mean;
  for (size_t p = 0; p < shapes_.size(); ++p) {
    const std::span<const float> values = slot.reduction->values(p);
    mean.emplace_back(values.begin(), values.end());
  }
  machine_->Apply(&mean);
  return outcome;
}

// The keys of the rounds that are sent are numbers from `first_key` on.
Result<StepOutcome> DelayedRunner::Act(const std::vector<DelayedAction>& actions,
                                       uint64_t first_key) {
  StepOutcome lost;
  for (const DelayedAction& action : actions) {
    if (action.kind == DelayedAction::Kind::kSend) {
      EQ_RETURN_IF_ERROR(Send(action.round, first_key + static_cast<uint64_t>(action.round)));
      continue;
    }
    EQ_ASSIGN_OR_RETURN(StepOutcome outcome, Apply(action.round));
    if (outcome.skipped) lost = std::move(outcome);
  }
  return lost;
}

Result<StepResult> DelayedRunner::Run(int64_t step, double learning_rate, bool inspect,
                                      TrainLoader& loader) {
  Strike(FaultMoment::kStep, step);
  const Stopwatch watch;
  comm_->SetActivity("loading data");
  EQ_ASSIGN_OR_RETURN(const Batch batch, loader.Next());
  // A forward pass that meets NaN also spoils the running statistics.
  const std::vector<uint8_t> buffers = replica_->CopyBuffers();
  learning_rate_ = learning_rate;
  pass_->Begin(step, inspect);
  replica_->optimizer().BeginStep(step, learning_rate);
  EQ_RETURN_IF_ERROR(pass_->Run(batch));
  EQ_ASSIGN_OR_RETURN(const bool good, pass_->CheckFinite());
  if (!good) {
    replica_->RestoreBuffers(buffers);
    pass_->gradients().Begin();  // it counts as zero
  }
  std::vector<std::span<const float>> gradient;
  for (const NamedTensor& p : replica_->parameters()) {
    gradient.emplace_back(p.tensor.grad().const_data_ptr<float>(),
                          static_cast<size_t>(p.tensor.numel()));
  }
  EQ_ASSIGN_OR_RETURN(StepOutcome outcome, Act(machine_->OnGradient(step + 1, gradient), 0));
  if (step + 1 == total_steps_) {
    EQ_RETURN_IF_ERROR(Act(machine_->OnEnd(step + 1), kKeysOfEnd).status());
  }
  machine_->Advance();
  StepRecord record = pass_->Record(learning_rate, !good);
  comm_->SetActivity("between two steps");
  record.seconds.total = watch.Seconds();
  TakeCommunication(&record);
  return StepResult{record, std::move(outcome)};
}

void DelayedRunner::TakeCommunication(StepRecord* record) {
  ReducerStats stats;
  for (Slot& slot : slots_) stats += slot.reduction->TakeStats();
  const Traffic traffic = comm_->traffic();
  AddCommunication(stats, traffic - counted_, record);
  counted_ = traffic;
}

StateIdentity DelayedRunner::Identity() const {
  return MakeStateIdentity(comm_->rank(), comm_->world_size(), shapes_,
                           slots_[0].reduction->SpecsByParameter());
}

Status DelayedRunner::SaveMemory(Checkpoint* checkpoint) {
  const size_t under_way = machine_->rounds_under_way();
  checkpoint->metadata[kUnderWay] = std::to_string(under_way);
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    const std::string number = std::to_string(s);
    if (slot.reduction->is_under_way(0)) EQ_RETURN_IF_ERROR(Arrive(&slot));
    SaveMemoryOf(*slot.reduction, "slot" + number + "/", checkpoint);
    if (!slot.arrived) continue;
    for (size_t p = 0; p < shapes_.size(); ++p) {
      SaveFloats(kMeanOf + number + "/" + shapes_[p].name, slot.reduction->values(p),
                 checkpoint);
    }
    if (slot.arrived->skipped) checkpoint->metadata[kSkipOf + number] = slot.arrived->reason;
  }
  machine_->ForEachState(under_way, [&](std::string_view field, size_t index,
                                        std::span<float> values) {
    SaveFloats(kField + std::string(field) + "/" + std::to_string(index), values, checkpoint);
  });
  replica_->Save(checkpoint);
  return {};
}

Status DelayedRunner::LoadMemory(const Checkpoint& checkpoint) {
  EQ_RETURN_IF_ERROR(replica_->Load(checkpoint));
  EQ_ASSIGN_OR_RETURN(const int64_t under_way, LoadCount(checkpoint, kUnderWay));
  if (under_way > machine_->MostUnderWay()) {
    return CorruptData("there are more rounds under way than there can be");
  }
  Status status;
  machine_->ForEachState(
      static_cast<size_t>(under_way),
      [&](std::string_view field, size_t index, std::span<float> values) {
        if (!status.ok()) return;
        status = LoadFloats(checkpoint,
                            kField + std::string(field) + "/" + std::to_string(index), values);
      });
  EQ_RETURN_IF_ERROR(status);
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    const std::string number = std::to_string(s);
    EQ_RETURN_IF_ERROR(LoadMemoryOf(checkpoint, "slot" + number + "/", slot.reduction.get()));
    if (!checkpoint.tensors.contains(kMeanOf + number + "/" + shapes_[0].name)) continue;
    for (size_t p = 0; p < shapes_.size(); ++p) {
      EQ_RETURN_IF_ERROR(LoadFloats(checkpoint, kMeanOf + number + "/" + shapes_[p].name,
                                    slot.reduction->values(p)));
    }
    slot.arrived.emplace();
    const auto lost = checkpoint.metadata.find(kSkipOf + number);
    if (lost != checkpoint.metadata.end()) slot.arrived = {true, lost->second};
  }
  return {};
}

}  // namespace elastiquant
