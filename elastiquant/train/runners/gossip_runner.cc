#include "elastiquant/train/runners/gossip_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "elastiquant/base/random.h"
#include "elastiquant/base/standard_streams.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/graph/parts.h"
#include "elastiquant/layers/gossip_sections.h"
#include "elastiquant/protocol/gossip/doubt.h"
#include "elastiquant/train/own_state.h"

namespace elastiquant {
namespace {

// Sections of a worker's checkpoint, and entries of its metadata.
constexpr char kGossipState[] = "gossip/";  // then the name of SectionsOfGossip
constexpr char kGossipStart[] = "gossip-start";
constexpr char kGossipInRound[] = "gossip_in_round";
constexpr char kGossipSteps[] = "gossip_steps";

// Rounds from one roll call to the next, for which all have to wait for each other, in a run
// that goes on without workers that are lost.
constexpr uint64_t kRollCallRounds = 50;

void WarnOfDoubt(const GossipOptions& options) {
  const std::string doubt = DoubtAbout(options);
  if (!doubt.empty()) Warn(doubt);
}

}  // namespace

Result<std::unique_ptr<Runner>> GossipRunner::Make(const TrainOptions& options,
                                                   const RunnerPlace& place) {
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(options.algorithm));
  std::unique_ptr<GossipRunner> runner(new GossipRunner(options, place));
  EQ_ASSIGN_OR_RETURN(runner->pass_, BackwardPass::MakeForOwn(options, place));
  runner->shapes_ = ShapesOf(place.replica->parameters());
  EQ_ASSIGN_OR_RETURN(BucketPlan plan, PlanOneBucket(runner->shapes_));
  runner->certificate_ = std::make_unique<Certificate>(plan, runner->shapes_);
  EQ_ASSIGN_OR_RETURN(
      runner->graph_,
      Graph::Parse(GraphOf(options), static_cast<size_t>(place.workers), options.seed));
  runner->gossip_ = {.kind = algorithm.gossip,
                     .rank = place.worker,
                     .graph = runner->graph_,
                     .codec = options.codec,
                     .seed = Mix64(options.seed),  // apart from weights and data
                     .threads = options.codec_threads,
                     .delay = std::max<int64_t>(algorithm.delay, 0),
                     .outer_rate = algorithm.outer_rate,
                     .outer_momentum = algorithm.outer_momentum};
  SetModel(runner->shapes_, &runner->gossip_);
  runner->gap_ = runner->graph_->Factors().gap;
  runner->counted_ = place.comm->traffic();
  if (place.is_newcomer) EQ_RETURN_IF_ERROR(runner->JoinGroup({}, /*afresh=*/true));
  return std::unique_ptr<Runner>(std::move(runner));
}

// The parameters, one behind the other.
std::vector<float> GossipRunner::Weights() const { return ValuesOf(SpansOf(*replica_)); }

void GossipRunner::SetWeights(std::span<const float> weights) {
  SetValues(weights, SpansOf(*replica_));
}

Status GossipRunner::MakeExchange() {
  EQ_ASSIGN_OR_RETURN(const std::optional<double> step, GossipStepOf(options_));
  gossip_.step = step.value_or(0);
  start_ = Weights();
  if (worker_ == 0) WarnOfDoubt(gossip_);
  EQ_ASSIGN_OR_RETURN(exchange_, GossipExchange::Make(comm_, gossip_, start_));
  if (may_lose_) exchange_->KeepMessages();
  return {};
}

// All workers have the same weights now.
void GossipRunner::StartFromReplica() { start_status_ = MakeExchange(); }

nlohmann::json GossipRunner::Network() const {
  return {{"graph", graph_->spec()},
          {"spectral_gap", gap_},
          {"gossip_step", exchange_ ? exchange_->step() : gossip_.step},
          {"neighbours", graph_->senders(0)},  // whoever writes the summary
          {"consensus_distance", distance_}};
}

// A step.

// All answer each other from here on, also who makes no step before they meet again.
Status GossipRunner::BeginStretch() {
  EQ_RETURN_IF_ERROR(start_status_);
  shared_.reset();
  return exchange_->Open();
}

bool GossipRunner::EndsRound(int64_t step) const {
  if ((step + 1) % RoundOf(options_) == 0) return true;
  return !shares_steps_ && step + 1 == total_steps_;
}

Status GossipRunner::BeginRound() {
  if (is_in_round_) return {};
  exchange_->CopyWeights(start_);
  SetWeights(start_);
  is_in_round_ = true;
  return {};
}

Status GossipRunner::EndRound() {
  std::vector<float> moved = Weights();
  for (size_t e = 0; e < moved.size(); ++e) moved[e] -= start_[e];
  EQ_RETURN_IF_ERROR(exchange_->Finish(moved));
  is_in_round_ = false;
  exchange_->CopyWeights(start_);
  SetWeights(start_);
  ++rounds_;
  return {};
}

// The part of a step that needs no answer of others.
Status GossipRunner::MakeStep(int64_t step, double learning_rate, TrainLoader& loader) {
  Strike(FaultMoment::kStep, step);
  const Stopwatch watch;
  shared_.reset();
  EQ_RETURN_IF_ERROR(BeginRound());
  if (EndsRound(step)) EQ_RETURN_IF_ERROR(exchange_->Begin());
  comm_->SetActivity("loading data");
  EQ_ASSIGN_OR_RETURN(const Batch batch, loader.Next());
  EQ_ASSIGN_OR_RETURN(const bool made, pass_->TrainAlone(step, learning_rate, batch));
  made_ = {pass_->Record(learning_rate, !made), watch};
  return {};
}

Result<StepResult> GossipRunner::Run(int64_t step, double learning_rate, bool /*inspect*/,
                                     TrainLoader& loader) {
  EQ_RETURN_IF_ERROR(start_status_);
  // What a worker does, and when a fault strikes it, goes by its own steps.
  if (shares_steps_) step = own_steps_++;
  if (!made_) EQ_RETURN_IF_ERROR(MakeStep(step, learning_rate, loader));
  const bool ends_round = EndsRound(step);
  const bool is_last = !shares_steps_ && step + 1 == total_steps_;
  if (ends_round && !made_->is_mixed) EQ_RETURN_IF_ERROR(EndRound());
  made_->is_mixed = true;
  StepRecord record = made_->record;
  record.seconds.total = made_->watch.Seconds();
  const bool is_roll_call =
      ends_round && (!may_lose_ || (rounds_ - rounds_before_) % kRollCallRounds == 0);
  if (may_lose_ && is_roll_call) EQ_RETURN_IF_ERROR(Settle());
  // The run ends with a model that all have.
  if (is_last) EQ_RETURN_IF_ERROR(FindShared());
  made_.reset();
  comm_->SetActivity("between two steps");
  TakeCommunication(&record);
  return StepResult{record, {}, is_roll_call};
}

void GossipRunner::TakeCommunication(StepRecord* record) {
  const Traffic traffic = comm_->traffic();
  ReducerStats stats = exchange_->TakeStats();
  if (options_.measure_every == 0) stats.squared_error = stats.squared_norm = 0;
  AddCommunication(stats, traffic - counted_, record);
  counted_ = traffic;
}

// A group that changes.

void GossipRunner::LeaveGroup() {
  if (exchange_) exchange_->Leave();
}

Status GossipRunner::JoinGroup(const std::vector<double>& /*weights*/, bool afresh) {
  EQ_ASSIGN_OR_RETURN(const auto names, comm_->AllGather(static_cast<uint64_t>(worker_)));
  EQ_ASSIGN_OR_RETURN(const auto begins, comm_->AllGather(afresh ? 1 : 0));
  std::vector<int> nodes, newcomers;
  for (size_t r = 0; r < names.size(); ++r) {
    nodes.push_back(static_cast<int>(names[r]));
    if (begins[r] != 0) newcomers.push_back(nodes.back());
  }
  if (afresh) {
    exchange_ = GossipExchange::MakeNewcomer(comm_, gossip_);
    exchange_->KeepMessages();
  }
  shared_.reset();
  return exchange_->Join(nodes, newcomers);
}

GraphParts GossipRunner::PartsOf(const std::vector<int>& group) const {
  return elastiquant::PartsOf(*graph_, group);
}

Status GossipRunner::CheckThoseLeft(const std::vector<int>& group) const {
  return elastiquant::CheckThoseLeft(gossip_.kind, *graph_, group);
}

std::vector<std::span<float>> GossipRunner::SharedState() {
  handed_ = Weights();
  return {handed_};
}

Status GossipRunner::Admit(const std::vector<int>& newcomers) {
  return exchange_->Admit(newcomers, handed_);
}

void GossipRunner::StartFromShared(int64_t /*step*/) {
  made_.reset();
  is_in_round_ = false;
  rounds_before_ = rounds_;
  start_ = handed_;
  SetWeights(start_);
}

// The model of all.

// Between two rounds nothing is under way then, and the weights are those of the exchange.
Status GossipRunner::Settle() {
  EQ_RETURN_IF_ERROR(start_status_);
  EQ_RETURN_IF_ERROR(exchange_->Pause());
  if (is_in_round_) return {};
  exchange_->CopyWeights(start_);
  SetWeights(start_);
  return {};
}

// Collective.
Status GossipRunner::FindShared() {
  if (shared_) return {};
  EQ_RETURN_IF_ERROR(Settle());
  Shared shared;
  EQ_ASSIGN_OR_RETURN(shared.mean, MeanOfModels(comm_, Weights()));
  const std::vector<uint8_t> own = replica_->CopyBuffers();
  EQ_RETURN_IF_ERROR(replica_->AverageBuffers(*comm_, {}));
  shared.buffers = replica_->CopyBuffers();
  replica_->RestoreBuffers(own);
  distance_ = shared.mean.distance;
  shared_ = std::move(shared);
  return {};
}

Result<std::string> GossipRunner::OddCopies() {
  EQ_RETURN_IF_ERROR(Settle());
  // The weights may differ between workers: what can drift is what they know of each other.
  if (pass_->IsDue(FaultKind::kDrift)) EQ_RETURN_IF_ERROR(exchange_->Drift());
  return exchange_->OddReplicas();
}

void GossipRunner::ShowShared() {
  own_weights_ = Weights();
  own_buffers_ = replica_->CopyBuffers();
  if (!shared_) return;
  SetWeights(shared_->mean.values);
  replica_->RestoreBuffers(shared_->buffers);
}

void GossipRunner::ShowOwn() {
  SetWeights(own_weights_);
  replica_->RestoreBuffers(own_buffers_);
}

Status GossipRunner::ShareBuffers() {
  EQ_RETURN_IF_ERROR(FindShared());
  // Who answers in AD-PSGD may have moved until now.
  if (!is_in_round_) own_weights_ = start_;
  SetWeights(shared_->mean.values);
  replica_->RestoreBuffers(shared_->buffers);
  return {};
}

// What is saved.

StateIdentity GossipRunner::Identity() const {
  const std::vector<std::string> specs(shapes_.size(), options_.codec);
  return MakeStateIdentity(worker_, workers_, shapes_, specs);
}

Status GossipRunner::SaveMemory(Checkpoint* checkpoint) {
  EQ_RETURN_IF_ERROR(FindShared());
  EQ_ASSIGN_OR_RETURN(const GossipState state, exchange_->Save());
  SaveSections(SectionsOfGossip(state), kGossipState, checkpoint);
  checkpoint->metadata[kGossipInRound] = std::to_string(is_in_round_ ? 1 : 0);
  checkpoint->metadata[kGossipSteps] = std::to_string(own_steps_);
  SaveFloats(kGossipStart, start_, checkpoint);
  // The replica as it is: this worker's own weights, statistics and optimiser.
  replica_->Save(checkpoint);
  return {};
}

Status GossipRunner::LoadMemory(const Checkpoint& checkpoint) {
  EQ_RETURN_IF_ERROR(start_status_);
  EQ_RETURN_IF_ERROR(replica_->Load(checkpoint));
  EQ_ASSIGN_OR_RETURN(const GossipState state,
                      ReadGossip(SectionsBehind(kGossipState, checkpoint)));
  EQ_RETURN_IF_ERROR(exchange_->Load(state));
  EQ_ASSIGN_OR_RETURN(const int64_t in_round, LoadCount(checkpoint, kGossipInRound));
  is_in_round_ = in_round != 0;
  EQ_ASSIGN_OR_RETURN(own_steps_, LoadCount(checkpoint, kGossipSteps));
  return LoadFloats(checkpoint, kGossipStart, start_);
}

}  // namespace elastiquant
