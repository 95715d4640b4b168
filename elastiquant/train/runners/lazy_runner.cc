#include "elastiquant/train/runners/lazy_runner.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "elastiquant/base/random.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/train/own_state.h"
#include "elastiquant/train/runners/message_round.h"

namespace elastiquant {
namespace {

constexpr char kLazyState[] = "lazy";  // the section of a worker's checkpoint
constexpr uint32_t kLazyTag = 1;

LazyRule RuleOf(AlgorithmKind kind) {
  if (kind == AlgorithmKind::kLagPs) return LazyRule::kLagPs;
  if (kind == AlgorithmKind::kLaq) return LazyRule::kLaq;
  return kind == AlgorithmKind::kLasg ? LazyRule::kLasg : LazyRule::kLagWk;
}

// The rules are made for SGD without momentum, where the weights move by the rate times the
// gradient. With momentum a gradient moves them by 1 / (1 - momentum) times that in the end. If
// it did not count, workers would take ten times too large a change for a small one: with the
// usual momentum of .9 they hardly ever sent, and training diverged.
double StepsOfMomentum(const TrainOptions& options) {
  return options.optimizer == "sgd" ? 1 / (1 - options.momentum) : 1;
}

}  // namespace

Result<std::unique_ptr<Runner>> LazyRunner::Make(const TrainOptions& options,
                                                 const RunnerPlace& place) {
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(options.algorithm));
  // Shares that are dealt evenly may differ by a sample.
  const auto volumes = std::ranges::minmax_element(place.weights);
  if (!place.weights.empty() && *volumes.max - *volumes.min > 1) {
    return InvalidArgument("--algorithm " + options.algorithm +
                           " counts all workers alike: it needs shares of the same volume");
  }
  std::unique_ptr<LazyRunner> runner(new LazyRunner(options, place));
  EQ_RETURN_IF_ERROR(runner->MakePass(place));
  EQ_RETURN_IF_ERROR(runner->MakeMachine(algorithm));
  return std::unique_ptr<Runner>(std::move(runner));
}

Status LazyRunner::MakePass(const RunnerPlace& place) {
  shapes_ = ShapesOf(replica_->parameters());
  // One message has them all: a worker sends its whole gradient or none of it.
  EQ_ASSIGN_OR_RETURN(BucketPlan plan, PlanOneBucket(shapes_));
  certificate_ = std::make_unique<Certificate>(plan, shapes_);
  EQ_ASSIGN_OR_RETURN(pass_, BackwardPass::Make(options_, place, std::move(plan), nullptr));
  return {};
}

Status LazyRunner::MakeMachine(const Algorithm& algorithm) {
  EQ_ASSIGN_OR_RETURN(Lazy machine,
                      Lazy::Make({.rule = RuleOf(algorithm.kind),
                                  .rank = comm_->rank(),
                                  .world_size = comm_->world_size(),
                                  .elements = gradient().size(),
                                  .codec = options_.codec,
                                  .seed = Mix64(options_.seed),  // apart from weights and data
                                  .threads = options_.codec_threads,
                                  .history = algorithm.history,
                                  .weight = algorithm.xi,
                                  .most_silent = algorithm.silence}));
  machine_.emplace(std::move(machine));
  return {};
}

// In the order of the message.
std::vector<std::span<float>> LazyRunner::Places() const {
  const std::vector<std::span<float>> all = SpansOf(*replica_);
  std::vector<std::span<float>> places;
  for (const BucketSlot& slot : pass_->gradients().plan().buckets[bucket_].slots) {
    places.push_back(all[slot.parameter]);
  }
  return places;
}

std::vector<float> LazyRunner::Weights() const { return ValuesOf(Places()); }

void LazyRunner::SetWeights(std::span<const float> weights) { SetValues(weights, Places()); }

// The gradient of the same samples at the weights of this worker's last upload. Statistics of
// batch normalisation must not learn of it.
Status LazyRunner::ComputeReference(int64_t step, const Batch& batch) {
  reference_.clear();
  if (!machine_->wants_reference()) return {};
  const std::vector<uint8_t> buffers = replica_->CopyBuffers();
  SetWeights(machine_->last_weights());
  pass_->Begin(step, /*inspect=*/false);
  const Status status = pass_->Run(batch);
  reference_.assign(gradient().begin(), gradient().end());
  SetWeights(weights_);
  replica_->RestoreBuffers(buffers);
  return status;
}

// Sends this worker's message to all, and takes theirs.
Result<LazyApply> LazyRunner::Exchange() {
  const std::span<float> scalars = pass_->gradients().scalars();
  EQ_ASSIGN_OR_RETURN(const auto message, machine_->OnGradient({.gradient = gradient(),
                                                                .weights = weights_,
                                                                .reference = reference_,
                                                                .loss = scalars[0],
                                                                .accuracy = scalars[1]}));
  MessageRound round(comm_, kLazyTag);
  for (int w = 0; w < comm_->world_size(); ++w) {
    if (w == comm_->rank()) continue;
    round.Receive(w, machine_->MaxMessageBytes());
    round.Send(w, message);
  }
  comm_->SetActivity("waiting for the others' gradients");
  const Stopwatch watch;
  EQ_ASSIGN_OR_RETURN(const auto coming, round.Finish());
  wait_seconds_ = watch.Seconds();
  EQ_ASSIGN_OR_RETURN(std::optional<LazyApply> apply,
                      machine_->OnMessage(comm_->rank(), message));
  for (const auto& incoming : coming) {
    EQ_ASSIGN_OR_RETURN(apply, machine_->OnMessage(incoming->from(), incoming->bytes()));
  }
  if (!apply) return Internal("a step lacks messages although all workers have sent one");
  return *std::move(apply);
}

void LazyRunner::Move(const LazyApply& apply, double learning_rate) {
  std::ranges::copy(apply.mean, gradient().begin());
  pass_->gradients().ClipNorm(options_.clip_norm);
  replica_->optimizer().Step(learning_rate);
  machine_->OnMoved(SquaredDistance(Weights(), weights_),
                    learning_rate * StepsOfMomentum(options_));
}

Result<StepResult> LazyRunner::Run(int64_t step, double learning_rate, bool inspect,
                                   TrainLoader& loader) {
  Strike(FaultMoment::kStep, step);
  const Stopwatch watch;
  const Traffic before = comm_->traffic();
  comm_->SetActivity("loading data");
  EQ_ASSIGN_OR_RETURN(const Batch batch, loader.Next());
  machine_->StartAt(static_cast<uint64_t>(step));
  weights_ = Weights();
  EQ_RETURN_IF_ERROR(ComputeReference(step, batch));
  // A forward pass that meets NaN also spoils the running statistics: a skipped step undoes it.
  const std::vector<uint8_t> buffers = replica_->CopyBuffers();
  pass_->Begin(step, inspect);
  replica_->optimizer().BeginStep(step, learning_rate);
  EQ_RETURN_IF_ERROR(pass_->Run(batch));
  EQ_ASSIGN_OR_RETURN(const LazyApply apply, Exchange());
  comm_->SetActivity("between two steps");
  pass_->gradients().scalars()[0] = apply.loss;
  pass_->gradients().scalars()[1] = apply.accuracy;
  StepRecord record = pass_->Record(learning_rate, apply.skipped);
  if (apply.skipped) {
    replica_->RestoreBuffers(buffers);
  } else {
    Move(apply, learning_rate);
  }
  ++rounds_;
  record.seconds.total = watch.Seconds();
  ReducerStats stats;
  stats.wait_seconds = wait_seconds_;
  AddCommunication(stats, comm_->traffic() - before, &record);
  StepOutcome outcome;
  outcome.skipped = apply.skipped;
  outcome.reason = apply.reason;
  return StepResult{record, std::move(outcome)};
}

StateIdentity LazyRunner::Identity() const {
  const std::vector<std::string> specs(shapes_.size(), options_.codec);
  return MakeStateIdentity(comm_->rank(), comm_->world_size(), shapes_, specs);
}

Status LazyRunner::SaveMemory(Checkpoint* checkpoint) {
  std::vector<uint8_t> state = machine_->Save();
  const auto size = static_cast<int64_t>(state.size());
  checkpoint->tensors[kLazyState] = {.dtype = "U8", .shape = {size}, .bytes = std::move(state)};
  replica_->SaveOwn(checkpoint);
  return {};
}

Status LazyRunner::LoadMemory(const Checkpoint& checkpoint) {
  const auto found = checkpoint.tensors.find(kLazyState);
  if (found == checkpoint.tensors.end()) {
    return CorruptData(std::string("section ") + kLazyState + " is missing");
  }
  EQ_RETURN_IF_ERROR(machine_->Load(found->second.bytes));
  return replica_->LoadOwn(checkpoint);
}

}  // namespace elastiquant
