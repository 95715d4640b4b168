#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <utility>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/train/loop/replica_check.h"
#include "elastiquant/train/loop/training_run.h"

namespace elastiquant {

// Every worker's own part first: a checkpoint of the run has all that goes with it.
Status TrainingRun::SaveAll() {
  comm_.SetActivity("saving a checkpoint");
  runner_->Strike(FaultMoment::kCheckpoint, last_step());
  Checkpoint mine;
  if (runner_->remembers()) EQ_RETURN_IF_ERROR(runner_->SaveMemory(&mine));
  StepRecord rest;  // of messages that were under way: no step is told of them any more
  runner_->TakeCommunication(&rest);
  state_.record.AddCommunication(rest);
  EQ_RETURN_IF_ERROR(ShareBytes());
  EQ_RETURN_IF_ERROR(ShareCounts());
  EQ_RETURN_IF_ERROR(runner_->certificate().Gather(&comm_));
  const SharedModel shared(runner_.get());
  if (runner_->remembers()) {
    EQ_RETURN_IF_ERROR(agreement_.Agree(
        SaveWorker(options_, runner_->Identity(), state_.step, *replica_, std::move(mine))));
  }
  if (!is_first()) return Status::Ok();
  state_.codec = runner_->AdaptedCodec();
  state_.certificate = runner_->certificate().SaveState();
  state_.absent = Absent();
  return SaveRun(options_, workers_, *replica_, &state_);
}

// Collective: the totals count the workers' mean, since frames of coded bytes differ in length.
Status TrainingRun::ShareBytes() {
  const auto mean = [this](uint64_t mine) -> Result<uint64_t> {
    EQ_ASSIGN_OR_RETURN(const std::vector<uint64_t> all, comm_.AllGather(mine));
    return std::accumulate(all.begin(), all.end(), uint64_t{0}) / all.size();
  };
  WorkerBytes bytes;
  EQ_ASSIGN_OR_RETURN(bytes.up, mean(state_.record.own_bytes().up));
  EQ_ASSIGN_OR_RETURN(bytes.down, mean(state_.record.own_bytes().down));
  state_.record.SetMeanBytes(bytes);
  return Status::Ok();
}

// If others have measured already, this worker was told what came of it.
Status TrainingRun::EndEpoch() {
  EQ_RETURN_IF_ERROR(At(Station::kEpoch, [this] { return MeasureEpoch(); }));
  const int64_t epoch = epoch_of(state_.step - 1);
  if (is_first()) progress_->Epoch(epoch, state_.record.epoch(), evaluation_.accuracy);
  nlohmann::json more = nlohmann::json::object();
  if (!own_accuracies_.is_null()) {
    more["own_accuracy"] = std::exchange(own_accuracies_, nullptr);
    more["consensus_distance"] = runner_->Network().at("consensus_distance");
  }
  state_.record.EndEpoch(epoch, /*is_whole=*/state_.step % steps_per_epoch_ == 0,
                         evaluation_.accuracy, evaluation_.loss, more);
  return is_first() ? Certify(epoch) : Status::Ok();
}

// Collective. Where each worker has a model of its own: how good these are, each on its
// worker's share of the test set.
Status TrainingRun::EvaluateOwn() {
  own_accuracies_ = nullptr;
  if (!runner_->has_own_models()) return {};
  EQ_ASSIGN_OR_RETURN(const Evaluation own,
                      Evaluate(*replica_, *test_loader_, comm_, agreement_));
  own_accuracies_ = std::vector<nlohmann::json>(static_cast<size_t>(workers_));
  for (size_t rank = 0; rank < own.by_worker.size(); ++rank) {
    own_accuracies_[static_cast<size_t>(NameOf(static_cast<int>(rank)))] = own.by_worker[rank];
  }
  return {};
}

// Collective.
Status TrainingRun::MeasureEpoch() {
  EQ_RETURN_IF_ERROR(ShareBytes());
  EQ_RETURN_IF_ERROR(CheckReplicas());
  const int64_t epoch = epoch_of(state_.step - 1);
  const bool due = state_.step == total_steps_ ||
                   (options_.eval_every > 0 && epoch % options_.eval_every == 0);
  evaluation_ = {};
  if (due && options_.replay.empty()) {
    const Stopwatch watch;
    comm_.SetActivity("in an evaluation");
    runner_->Strike(FaultMoment::kEvaluation, last_step());
    EQ_RETURN_IF_ERROR(EvaluateOwn());
    const SharedModel shared(runner_.get());
    EQ_RETURN_IF_ERROR(runner_->ShareBuffers());
    EQ_ASSIGN_OR_RETURN(evaluation_, Evaluate(*replica_, *test_loader_, comm_, agreement_));
    state_.record.AddOverhead(watch.Seconds(), 0);
  }
  return runner_->certificate().Gather(&comm_);
}

// The epoch's variance and bits by layer, against their bounds.
Status TrainingRun::Certify(int64_t epoch) {
  Certificate& certificate = runner_->certificate();
  for (const nlohmann::json& line : certificate.TakeLines(state_.step, epoch)) {
    EQ_RETURN_IF_ERROR(certificate_log_->Write(line));
    if (line["verdict"] != VerdictName(Verdict::kExceeded)) continue;
    progress_->Note(fmt::format(
        "warning: in epoch {} layer '{}' was quantised with an NMSE of {:.3g}, above the bound "
        "of {:.3g}: please report this bug, with certificate.jsonl",
        epoch, line["layer"].get<std::string>(), line["nmse"].get<double>(),
        line["bound"].get<double>()));
  }
  return Status::Ok();
}

// Collective. What workers keep of each other, where each has a model of its own.
Status TrainingRun::CheckCopies() {
  EQ_ASSIGN_OR_RETURN(const std::string odd, runner_->OddCopies());
  if (odd.empty()) return Status::Ok();
  replicas_identical_ = false;
  {
    const SharedModel shared(runner_.get());
    EQ_RETURN_IF_ERROR(runner_->ShareBuffers());
    EQ_RETURN_IF_ERROR(Summarise());
  }
  return agreement_.Known(Internal(
      "after step " + std::to_string(state_.step) + " the copies on edge(s) " + odd +
      " differ: what the second worker has of the first must be to the bit what that one has"));
}

Status TrainingRun::CheckReplicas() {
  if (!runner_->has_replicas()) return CheckCopies();
  const SharedModel shared(runner_.get());
  EQ_ASSIGN_OR_RETURN(const std::vector<uint64_t> hashes, comm_.AllGather(replica_->Hash()));
  const std::vector<int> odd = NamesOf(OddReplicas(hashes));
  if (odd.empty()) return Status::Ok();
  replicas_identical_ = false;
  EQ_RETURN_IF_ERROR(Summarise());
  return agreement_.Known(Internal(
      fmt::format("after step {} the weights of worker(s) {} differ from the others': replicas "
                  "must be identical",
                  state_.step, fmt::join(odd, ", "))));
}

// Collective: adds what the runner has counted since the last call to the run's counts. Workers
// tell their uploads of the whole run, so that it changes nothing if some of them, which have
// lost a worker meanwhile, tell them again.
Status TrainingRun::ShareCounts() {
  state_.uploads.resize(static_cast<size_t>(workers_));
  const auto of_run = [&](int rank) -> uint64_t& {
    const auto r = static_cast<size_t>(rank);
    return state_.uploads[crew_ ? static_cast<size_t>(group_[r]) : r];
  };
  const Runner::Counts now = runner_->counts();
  const uint64_t mine = of_run(comm_.rank()) + now.uploads - counted_.uploads;
  EQ_ASSIGN_OR_RETURN(const auto uploads, comm_.AllGather(mine));
  state_.rounds += now.rounds - counted_.rounds;
  counted_ = now;
  for (int r = 0; r < comm_.world_size(); ++r) of_run(r) = uploads[static_cast<size_t>(r)];
  return {};
}

// Collective, while the shared model is shown.
Status TrainingRun::Summarise() {
  EQ_RETURN_IF_ERROR(ShareCounts());
  EQ_ASSIGN_OR_RETURN(nlohmann::json samples, runner_->Samples());
  if (!is_first()) return Status::Ok();
  RunFacts facts = Facts();
  facts.samples = std::move(samples);
  return WriteSummary(options_, info_, facts, state_.record);
}

RunFacts TrainingRun::Facts() const {
  return {.world_size = workers_,
          .coordinates = coordinates_,
          .steps_per_epoch = steps_per_epoch_,
          .shared_steps = SharesSteps(options_) ? state_.step : 0,
          .replicas_identical = replicas_identical_,
          .weights_hash = replica_->Hash(),
          .init = state_.init,
          .edges = state_.edges,
          .rounds = state_.rounds,
          .uploads = state_.uploads,
          .policy = runner_->Policy(),
          .network = runner_->Network(),
          .losses = state_.losses,
          .shares = shares_.samples.empty() ? nullptr : &shares_};
}

}  // namespace elastiquant
