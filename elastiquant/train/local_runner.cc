#include "elastiquant/train/local_runner.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/train/own_state.h"

namespace elastiquant {
namespace {

// Sections of a worker's checkpoint.
constexpr char kMachine[] = "local/";      // then the field of LocalSteps, and the parameter
constexpr char kArrived[] = "arrived/";    // then the parameter: a mean that is to be applied
constexpr char kLost[] = "arrived-lost/";  // then the fragment: what was wrong with it

// What a worker counts for in a mean.
double ShareOf(int rank, int world_size, const std::vector<double>& weights) {
  if (weights.empty()) return 1.0 / world_size;
  return weights[static_cast<size_t>(rank)] /
         std::accumulate(weights.begin(), weights.end(), 0.0);
}

}  // namespace

Result<std::unique_ptr<Runner>> LocalRunner::Make(const TrainOptions& options,
                                                  const RunnerPlace& place) {
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(options.algorithm));
  std::unique_ptr<LocalRunner> runner(new LocalRunner(options, place));
  EQ_ASSIGN_OR_RETURN(runner->pass_,
                      BackwardPass::MakeForOwn(options, place.comm, place.replica));
  EQ_RETURN_IF_ERROR(runner->MakeFragments(algorithm));
  return std::unique_ptr<Runner>(std::move(runner));
}

Status LocalRunner::MakeFragments(const Algorithm& algorithm) {
  shapes_ = ShapesOf(replica_->parameters());
  const auto count = static_cast<size_t>(options_.fragments);
  EQ_ASSIGN_OR_RETURN(const std::vector<size_t> of, StridedFragments(shapes_, count));
  const LocalStepsOptions steps{.schedule = {.every = ShortestRoundOf(options_),
                                             .fragments = count,
                                             .delay = DelayOf(options_),
                                             .ends = RoundEnds(options_, total_steps_)},
                                .outer = {.learning_rate = algorithm.outer_rate,
                                          .momentum = algorithm.outer_momentum,
                                          .nesterov = true},
                                .mix = algorithm.mix,
                                .eager = algorithm.eager != 0,
                                .share = ShareOf(comm_->rank(), comm_->world_size(), weights_)};
  EQ_ASSIGN_OR_RETURN(LocalSteps machine, LocalSteps::Make(steps, SpansOf(*replica_), of));
  machine_.emplace(std::move(machine));
  FragmentOptions fragments = FragmentOptionsOf(options_, weights_);
  fragments.fragments = of;
  // Rounds are rare: each of them is measured, if any is to be.
  fragments.reducer.measure_every = options_.measure_every > 0 ? 1 : 0;
  EQ_ASSIGN_OR_RETURN(fragments_,
                      FragmentReduction::Make(comm_, shapes_, std::move(fragments)));
  counted_ = comm_->traffic();
  arrived_.resize(count);
  return {};
}

LocalSteps::PlaceOf LocalRunner::Place() {
  return [this](size_t parameter) { return fragments_->values(parameter); };
}

// Returns whether the step was made.
Result<bool> LocalRunner::Train(int64_t step, double learning_rate, const Batch& batch) {
  // A forward pass that meets NaN also spoils the running statistics.
  const std::vector<uint8_t> buffers = replica_->CopyBuffers();
  pass_->Begin(step, /*inspect=*/false);
  replica_->optimizer().BeginStep(step, learning_rate);
  EQ_RETURN_IF_ERROR(pass_->Run(batch));
  comm_->SetActivity("between two steps");
  EQ_ASSIGN_OR_RETURN(const bool good, pass_->CheckFinite());
  if (!good) {
    replica_->RestoreBuffers(buffers);
    return false;
  }
  pass_->gradients().ClipNorm(options_.clip_norm);
  replica_->optimizer().Step(learning_rate);
  return true;
}

// Waits for the mean of a fragment that is under way.
Status LocalRunner::Arrive(size_t fragment) {
  if (arrived_[fragment]) return {};
  EQ_ASSIGN_OR_RETURN(arrived_[fragment], fragments_->Finish(fragment));
  return {};
}

Result<StepOutcome> LocalRunner::Act(const std::vector<FragmentAction>& actions) {
  StepOutcome lost;
  for (const FragmentAction& action : actions) {
    const size_t f = action.fragment;
    if (action.kind == FragmentAction::Kind::kSend) {
      machine_->Send(f, Place());
      EQ_RETURN_IF_ERROR(fragments_->Begin(f, static_cast<uint64_t>(action.round)));
      ++rounds_;
      continue;
    }
    comm_->SetActivity("waiting for the mean of a round");
    EQ_RETURN_IF_ERROR(Arrive(f));
    const StepOutcome outcome = *std::exchange(arrived_[f], std::nullopt);
    machine_->Apply(f, outcome.skipped ? nullptr : Place());
    if (outcome.skipped) lost = outcome;
    bad_rounds_ = outcome.skipped ? bad_rounds_ + 1 : 0;
    if (bad_rounds_ < options_.max_skipped) continue;
    return NonFinite(fmt::format("gave up after {} rounds in a row whose work was lost: {}",
                                 bad_rounds_, outcome.reason));
  }
  return lost;
}

Result<StepResult> LocalRunner::Run(int64_t step, double learning_rate, bool /*inspect*/,
                                    TrainLoader& loader) {
  Strike(FaultMoment::kStep, step);
  const Stopwatch watch;
  comm_->SetActivity("loading data");
  EQ_ASSIGN_OR_RETURN(const Batch batch, loader.Next());
  EQ_ASSIGN_OR_RETURN(const bool made, Train(step, learning_rate, batch));
  StepRecord record = pass_->Record(learning_rate, !made);
  EQ_ASSIGN_OR_RETURN(StepOutcome outcome, Act(machine_->OnLocalStep(step + 1)));
  if (step + 1 == total_steps_) EQ_RETURN_IF_ERROR(Act(machine_->OnEnd(step + 1)).status());
  record.seconds.total = watch.Seconds();
  const Traffic traffic = comm_->traffic();
  AddCommunication(fragments_->TakeStats(), traffic - counted_, &record);
  counted_ = traffic;
  return StepResult{record, std::move(outcome)};
}

StateIdentity LocalRunner::Identity() const {
  return MakeStateIdentity(comm_->rank(), comm_->world_size(), shapes_,
                           fragments_->SpecsByParameter());
}

Status LocalRunner::SaveMemory(Checkpoint* checkpoint) {
  for (size_t f = 0; f < fragments_->fragments(); ++f) {
    if (fragments_->is_under_way(f)) EQ_RETURN_IF_ERROR(Arrive(f));
    if (!arrived_[f]) continue;
    for (const size_t p : fragments_->members(f)) {
      SaveFloats(kArrived + shapes_[p].name, fragments_->values(p), checkpoint);
    }
    if (arrived_[f]->skipped) {
      checkpoint->metadata[kLost + std::to_string(f)] = arrived_[f]->reason;
    }
  }
  SaveMemoryOf(*fragments_, "", checkpoint);
  machine_->ForEachState([&](std::string_view field, size_t p, std::span<float> values) {
    SaveFloats(kMachine + std::string(field) + "/" + shapes_[p].name, values, checkpoint);
  });
  // The replica as it is: this worker's own weights, statistics and optimiser.
  replica_->Save(checkpoint);
  return {};
}

Status LocalRunner::LoadMemory(const Checkpoint& checkpoint) {
  EQ_RETURN_IF_ERROR(replica_->Load(checkpoint));
  Status status;
  machine_->ForEachState([&](std::string_view field, size_t p, std::span<float> values) {
    if (!status.ok()) return;
    status =
        LoadFloats(checkpoint, kMachine + std::string(field) + "/" + shapes_[p].name, values);
  });
  EQ_RETURN_IF_ERROR(status);
  EQ_RETURN_IF_ERROR(LoadMemoryOf(checkpoint, "", fragments_.get()));
  for (size_t f = 0; f < fragments_->fragments(); ++f) {
    const std::span<const size_t> members = fragments_->members(f);
    if (!checkpoint.tensors.contains(kArrived + shapes_[members[0]].name)) continue;
    for (const size_t p : members) {
      EQ_RETURN_IF_ERROR(
          LoadFloats(checkpoint, kArrived + shapes_[p].name, fragments_->values(p)));
    }
    const auto lost = checkpoint.metadata.find(kLost + std::to_string(f));
    arrived_[f].emplace();
    if (lost != checkpoint.metadata.end()) arrived_[f] = {true, lost->second};
  }
  return {};
}

}  // namespace elastiquant
