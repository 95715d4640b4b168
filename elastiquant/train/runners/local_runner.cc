#include "elastiquant/train/runners/local_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "elastiquant/layers/fragments.h"
#include "elastiquant/train/own_state.h"

namespace elastiquant {
namespace {

// Sections of a worker's checkpoint.
constexpr char kMachine[] = "local/";    // then the field of LocalSteps, and the parameter
constexpr char kArrived[] = "arrived/";  // then the parameter: a mean that is to be applied
constexpr char kLosses[] = "losses";     // of the steps since the last round, and their number
constexpr char kLost[] = "arrived-lost/";  // then the fragment: what was wrong with it

}  // namespace

Result<std::unique_ptr<Runner>> LocalRunner::Make(const TrainOptions& options,
                                                  const RunnerPlace& place) {
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(options.algorithm));
  std::unique_ptr<LocalRunner> runner(new LocalRunner(options, place));
  EQ_ASSIGN_OR_RETURN(runner->pass_, BackwardPass::MakeForOwn(options, place));
  EQ_RETURN_IF_ERROR(runner->MakeMachine(algorithm));
  EQ_RETURN_IF_ERROR(runner->MakeFragments());
  return std::unique_ptr<Runner>(std::move(runner));
}

// What this worker counts for in a mean.
double LocalRunner::Share() const {
  if (weights_.empty()) return 1.0 / comm_->world_size();
  return weights_[static_cast<size_t>(comm_->rank())] /
         std::accumulate(weights_.begin(), weights_.end(), 0.0);
}

Status LocalRunner::MakeMachine(const Algorithm& algorithm) {
  shapes_ = ShapesOf(replica_->parameters());
  const auto count = static_cast<size_t>(options_.fragments);
  EQ_ASSIGN_OR_RETURN(fragment_of_, BalancedFragments(shapes_, count));
  const LocalStepsOptions steps{
      .schedule = {.every = ShortestRoundOf(options_),
                   .fragments = count,
                   .delay = DelayOf(options_),
                   .ends = RoundEnds(options_, total_steps_)},
      .outer = {.learning_rate = algorithm.outer_rate, .momentum = algorithm.outer_momentum},
      .mix = algorithm.mix,
      .eager = algorithm.eager != 0,
      .share = Share()};
  EQ_ASSIGN_OR_RETURN(LocalSteps machine,
                      LocalSteps::Make(steps, SpansOf(*replica_), fragment_of_));
  machine_.emplace(std::move(machine));
  course_.emplace(machine_->schedule());
  counted_ = comm_->traffic();
  arrived_.resize(count);
  return {};
}

Status LocalRunner::MakeFragments() {
  FragmentOptions fragments = FragmentOptionsOf(options_, weights_);
  fragments.fragments = fragment_of_;
  // Rounds are rare: each of them is measured, if any is to be.
  fragments.reducer.measure_every = options_.measure_every > 0 ? 1 : 0;
  EQ_RETURN_IF_ERROR(AddOwn(&fragments));
  EQ_ASSIGN_OR_RETURN(fragments_,
                      FragmentReduction::Make(comm_, shapes_, std::move(fragments)));
  return own_ ? own_->UseIn(&fragments_->reduction(0)) : Status::Ok();
}

// Has codecs that this worker chooses see what is sent and what comes of it. ValidateOptions
// sees to it that there is one fragment then, and that its mean is applied at once.
Status LocalRunner::AddOwn(FragmentOptions* options) {
  EQ_ASSIGN_OR_RETURN(const BucketPlan plan, FragmentReduction::Plan(shapes_, *options));
  const int64_t rounds = machine_->schedule().RoundOf(total_steps_) + 1;
  EQ_ASSIGN_OR_RETURN(own_, OwnCodecs::Make(options_, *comm_, weights_, plan, rounds));
  if (!own_) return {};
  options->scalars = kScalars + own_->scalars();
  options->add = [this](size_t fragment, LayerReductionOptions* layers) {
    own_->AddTo(layers, [this, fragment](size_t b) { return fragments_->bucket(fragment, b); });
    layers->before_sent = [this, fragment](size_t b) {
      own_->BeforeSent(b, fragments_->bucket(fragment, b),
                       fragments_->reduction(fragment).Remembered(b));
    };
  };
  return {};
}

// All that is to be sent is known by now.
Status LocalRunner::BeginRound() {
  if (!own_) return {};
  EQ_RETURN_IF_ERROR(own_->Foresee(&fragments_->reduction(0)));
  fragments_->scalars()[0] =
      Sendable(std::exchange(losses_, 0) / static_cast<double>(std::max<int64_t>(steps_, 1)));
  steps_ = 0;
  own_->BeginRound(own_scalars());
  return {};
}

// What workers send is how far they have moved, so that nothing multiplies it later.
Status LocalRunner::EndRound(const StepOutcome& outcome) {
  if (!own_) return {};
  const StepSeen seen{.loss = static_cast<double>(fragments_->scalars()[0]),
                      .learning_rate = 1,
                      .is_void = outcome.skipped};
  EQ_ASSIGN_OR_RETURN(decisions_,
                      own_->EndRound(own_scalars(), seen, &fragments_->reduction(0)));
  return {};
}

// A mean that has come may not have come to all.
void LocalRunner::LeaveGroup() {
  if (!fragments_) return;
  for (size_t f = 0; f < fragments_->fragments(); ++f) TakeBack(f);
  memory_.clear();
  fragments_->SaveMemory(&memory_);
  certificate_ = fragments_->certificate().SaveState();
  stats_ += fragments_->TakeStats();
  fragments_.reset();
}

// Ends a round that is under way, which has sent nothing unless another worker has applied it.
void LocalRunner::TakeBack(size_t fragment) {
  if (!fragments_->is_under_way(fragment) && !arrived_[fragment]) return;
  const bool has_come = Arrive(fragment).ok();
  const bool was_lost = has_come && arrived_[fragment]->skipped;
  arrived_[fragment].reset();
  if (was_lost) return;
  if (auto memory = fragments_->TakeBackMemory(fragment, has_come)) {
    if_applied_[fragment] = *std::move(memory);
  }
}

// The first task of a fragment in a new group tells what has become of its round.
Status LocalRunner::SettleMemory(const RoundTask& task) {
  const auto memory = if_applied_.extract(task.fragment);
  if (memory.empty() || task.kind != RoundTask::Kind::kTakeUp) return {};
  return fragments_->LoadMemory(task.fragment, memory.mapped());
}

Status LocalRunner::JoinGroup(const std::vector<double>& weights, bool afresh) {
  weights_ = weights;
  machine_->SetShare(Share());
  EQ_RETURN_IF_ERROR(MakeFragments());
  if (afresh) return {};
  EQ_RETURN_IF_ERROR(fragments_->LoadMemory(memory_));
  return fragments_->certificate().LoadState(certificate_);
}

void LocalRunner::Regroup(uint64_t furthest) {
  for (auto& arrived : arrived_) arrived.reset();
  course_->Regroup(furthest);
}

void LocalRunner::StartFromShared(int64_t step) {
  if_applied_.clear();
  machine_->StartFromShared();
  course_->StartAt(step);
  made_.reset();
}

LocalSteps::PlaceOf LocalRunner::Place() {
  return [this](size_t parameter) { return fragments_->values(parameter); };
}

// Waits for the mean of a fragment that is under way.
Status LocalRunner::Arrive(size_t fragment) {
  if (arrived_[fragment]) return {};
  EQ_ASSIGN_OR_RETURN(arrived_[fragment], fragments_->Finish(fragment));
  return {};
}

// Applies the mean of a fragment that is under way.
Result<StepOutcome> LocalRunner::Apply(size_t fragment) {
  comm_->SetActivity("waiting for the mean of a round");
  EQ_RETURN_IF_ERROR(Arrive(fragment));
  StepOutcome outcome = *std::exchange(arrived_[fragment], std::nullopt);
  EQ_RETURN_IF_ERROR(EndRound(outcome));
  machine_->Apply(fragment, outcome.skipped ? nullptr : Place());
  bad_rounds_ = outcome.skipped ? bad_rounds_ + 1 : 0;
  if (bad_rounds_ < options_.max_skipped) return outcome;
  return NonFinite(fmt::format("gave up after {} rounds in a row whose work was lost: {}",
                               bad_rounds_, outcome.reason));
}

// Does what follows the local step that was made last.
Result<StepOutcome> LocalRunner::Act() {
  using Kind = RoundTask::Kind;
  StepOutcome lost;
  while (const std::optional<RoundTask> task = course_->Next()) {
    const size_t f = task->fragment;
    EQ_RETURN_IF_ERROR(SettleMemory(*task));
    if (task->kind == Kind::kSend) {
      task->again ? machine_->SendAgain(f, Place()) : machine_->Send(f, Place());
      EQ_RETURN_IF_ERROR(BeginRound());
      EQ_RETURN_IF_ERROR(fragments_->Begin(f, static_cast<uint64_t>(task->round)));
      ++rounds_;
    } else if (task->kind == Kind::kApply) {
      EQ_ASSIGN_OR_RETURN(StepOutcome outcome, Apply(f));
      if (outcome.skipped) lost = std::move(outcome);
    } else if (task->kind == Kind::kTakeUp) {
      machine_->TakeUp(f);
    }
    course_->Done();
  }
  return lost;
}

Status LocalRunner::MakeStep(int64_t step, double learning_rate, TrainLoader& loader) {
  Strike(FaultMoment::kStep, step);
  const Stopwatch watch;
  comm_->SetActivity("loading data");
  EQ_ASSIGN_OR_RETURN(const Batch batch, loader.Next());
  EQ_ASSIGN_OR_RETURN(const bool made, pass_->TrainAlone(step, learning_rate, batch));
  made_ = {pass_->Record(learning_rate, !made), watch};
  if (made) {
    losses_ += pass_->loss();
    ++steps_;
  }
  course_->Enter(step + 1, step + 1 == total_steps_);
  return {};
}

Result<StepResult> LocalRunner::Run(int64_t step, double learning_rate, bool /*inspect*/,
                                    TrainLoader& loader) {
  if (!made_) EQ_RETURN_IF_ERROR(MakeStep(step, learning_rate, loader));
  EQ_ASSIGN_OR_RETURN(StepOutcome outcome, Act());
  StepRecord record = std::move(made_->record);
  record.seconds.total = made_->watch.Seconds();
  record.decisions = std::exchange(decisions_, nullptr);
  made_.reset();
  TakeCommunication(&record);
  return StepResult{record, std::move(outcome), course_->ends_round()};
}

void LocalRunner::TakeCommunication(StepRecord* record) {
  const Traffic traffic = comm_->traffic();
  ReducerStats stats = std::exchange(stats_, {});
  stats += fragments_->TakeStats();
  AddCommunication(stats, traffic - counted_, record);
  counted_ = traffic;
}

StateIdentity LocalRunner::Identity() const {
  return MakeStateIdentity(worker_, workers_, shapes_, fragments_->SpecsByParameter());
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
  if (own_) {
    own_->Save(checkpoint);
    SaveDoubles(kLosses, {{losses_, static_cast<double>(steps_)}}, checkpoint);
  }
  machine_->ForEachState([&](std::string_view field, size_t p, std::span<float> values) {
    SaveFloats(kMachine + std::string(field) + "/" + shapes_[p].name, values, checkpoint);
  });
  // The replica as it is: this worker's own weights, statistics and optimiser.
  replica_->Save(checkpoint);
  return {};
}

Status LocalRunner::LoadOwn(const Checkpoint& checkpoint) {
  if (!own_) return {};
  EQ_RETURN_IF_ERROR(own_->Load(checkpoint, &fragments_->reduction(0)));
  EQ_ASSIGN_OR_RETURN(const std::vector<double> losses, LoadDoubles(checkpoint, kLosses));
  if (losses.size() != 2 || !std::isfinite(losses[0]) || !(losses[1] >= 0 && losses[1] < 1e9)) {
    return CorruptData(std::string("section ") + kLosses + " is damaged");
  }
  losses_ = losses[0];
  steps_ = static_cast<int64_t>(losses[1]);
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
  EQ_RETURN_IF_ERROR(LoadOwn(checkpoint));
  for (size_t f = 0; f < fragments_->fragments(); ++f) {
    const std::span<const size_t> members = fragments_->members(f);
    if (!checkpoint.tensors.contains(kArrived + shapes_[members[0]].name)) continue;
    for (const size_t p : members) {
      EQ_RETURN_IF_ERROR(
          LoadFloats(checkpoint, kArrived + shapes_[p].name, fragments_->values(p)));
    }
    const auto lost = checkpoint.metadata.find(kLost + std::to_string(f));
    arrived_[f].emplace();
    course_->SetUnderWay(f);
    if (lost != checkpoint.metadata.end()) arrived_[f] = {true, lost->second};
  }
  return {};
}

}  // namespace elastiquant
