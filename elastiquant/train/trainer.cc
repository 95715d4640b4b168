#include "elastiquant/train/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <thread>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/c10d/tcp_store.h"
#include "elastiquant/c10d/torch_error.h"
#include "elastiquant/data/dataset.h"
#include "elastiquant/data/loader.h"
#include "elastiquant/data/own_share.h"
#include "elastiquant/data/partition.h"
#include "elastiquant/layers/agreement.h"
#include "elastiquant/runs/progress.h"
#include "elastiquant/runs/run_record.h"
#include "elastiquant/train/evaluate.h"
#include "elastiquant/train/gradient_dump.h"
#include "elastiquant/train/initial_weights.h"
#include "elastiquant/train/replica.h"
#include "elastiquant/train/replica_check.h"
#include "elastiquant/train/run_folder.h"
#include "elastiquant/train/runner.h"
#include "elastiquant/train/share_table.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kEvaluationBatch = 128;

int ChooseThreads(const TrainOptions& options, int workers_here) {
  if (options.threads > 0) return options.threads;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, workers_here));
}

// While it lives, the replica is the model that all workers share.
class SharedModel {
 public:
  explicit SharedModel(Runner* runner) : runner_(runner) { runner_->ShowShared(); }
  ~SharedModel() { runner_->ShowOwn(); }
  SharedModel(const SharedModel&) = delete;
  SharedModel& operator=(const SharedModel&) = delete;

 private:
  Runner* const runner_;
};

// The course of a run: what happens at its start, after each step and epoch, and at its end.
class Trainer {
 public:
  Trainer(const TrainOptions& options, const RunInfo& info, Communicator* comm)
      : options_(options), info_(info), comm_(*comm), agreement_(comm) {}

  // The whole run. libtorch throws: what it says is an error like any other.
  Status Train() try {
    EQ_RETURN_IF_ERROR(SetUp());
    return Run();
  } catch (const std::exception& error) {
    return Internal(Words(error));
  }
  const Agreement& agreement() const { return agreement_; }

 private:
  Status SetUp();
  Status Run();
  bool is_first() const { return comm_.rank() == 0; }
  int64_t last_step() const { return state_.step - 1; }
  int64_t epoch_of(int64_t step) const { return step / steps_per_epoch_ + 1; }

  Status OpenData();
  Status DealData();
  std::vector<double> Weights() const;
  Status MakeReplica();
  Status SetUpHere();
  Status OpenFolder();
  Result<std::unique_ptr<GradientDump>> MakeDump() const;
  Status ShareStart();
  Status LoadMemory();
  Status LoadCertificate();
  Status SaveAll();

  Status TrainStep();
  Status GiveUp(const StepOutcome& outcome);
  Status ShareBytes();
  Status EndEpoch();
  Status Certify(int64_t epoch);
  Status CheckReplicas();
  RunFacts Facts() const;
  Status ShareCounts();
  Status Summarise();

  const TrainOptions options_;
  const RunInfo info_;
  Communicator& comm_;
  Agreement agreement_;

  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<const Dataset> own_data_;  // what this worker may read of it
  LoaderOptions loading_;
  Shares shares_;  // none if all workers read the whole split
  std::unique_ptr<TrainLoader> loader_;
  std::unique_ptr<TestLoader> test_loader_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<GradientDump> dump_;  // until the runner takes it
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<MetricsLog> log_;              // worker 0's
  std::unique_ptr<MetricsLog> certificate_log_;  // likewise
  RunState state_;
  Runner::Counts counted_;  // in state_
  Schedule schedule_;

  int64_t coordinates_ = 0;
  int64_t steps_per_epoch_ = 1;
  int64_t total_steps_ = 0;
  bool replicas_identical_ = true;
};

Status Trainer::OpenData() {
  EQ_ASSIGN_OR_RETURN(const int64_t context, ContextOf(options_.model));
  const DatasetOptions data{.seed = options_.data_seed,
                            .image_size = options_.image_size,
                            .generated_train = options_.generated_train,
                            .generated_test = options_.generated_test,
                            .context = context};
  EQ_ASSIGN_OR_RETURN(dataset_, OpenDataset(options_.data, data));
  loading_ = {.batch = options_.batch,
              .rank = comm_.rank(),
              .world_size = comm_.world_size(),
              .seed = options_.seed,
              .augment = options_.augment,
              .threads = options_.loader_threads};
  EQ_RETURN_IF_ERROR(DealData());
  EQ_ASSIGN_OR_RETURN(loader_, TrainLoader::Make(dataset_, loading_));
  LoaderOptions testing = loading_;
  testing.batch = std::max(options_.batch, kEvaluationBatch);
  EQ_ASSIGN_OR_RETURN(test_loader_, TestLoader::Make(dataset_, testing));
  return Status::Ok();
}

// Every worker finds by itself what lies on it, and what on the others.
Status Trainer::DealData() {
  EQ_ASSIGN_OR_RETURN(const Partition partition, ParsePartition(options_.partition));
  own_data_ = dataset_;
  if (partition.is_iid() && !NeedsShares(options_)) return Status::Ok();
  EQ_ASSIGN_OR_RETURN(const std::vector<int64_t> labels, dataset_->Labels(Split::kTrain));
  EQ_ASSIGN_OR_RETURN(shares_, DealShares(labels, dataset_->info().classes, partition,
                                          options_.seed, comm_.world_size()));
  EQ_ASSIGN_OR_RETURN(own_data_,
                      OwnShareOf(dataset_, shares_.samples[static_cast<size_t>(comm_.rank())]));
  loading_.share = shares_.samples[static_cast<size_t>(comm_.rank())];
  loading_.dealt = shares_.Total();
  return Status::Ok();
}

// What each worker counts for in a mean, by rank: as many as it has samples. There are none if
// all count the same.
std::vector<double> Trainer::Weights() const {
  const std::vector<int64_t> volumes = shares_.Volumes();
  return {volumes.begin(), volumes.end()};
}

Status Trainer::MakeReplica() {
  const DatasetInfo& data = dataset_->info();
  const ModelOptions model_options{.classes = data.classes,
                                   .channels = data.channels,
                                   .image_size = data.image_size,
                                   .seed = options_.seed};
  EQ_ASSIGN_OR_RETURN(std::shared_ptr<Model> model, MakeModel(options_.model, model_options));
  coordinates_ = CountParameters(*model);
  EQ_ASSIGN_OR_RETURN(replica_, Replica::Make(std::move(model), options_));
  return Status::Ok();
}

Result<std::unique_ptr<GradientDump>> Trainer::MakeDump() const {
  std::unique_ptr<GradientDump> dump;
  if (options_.dump_gradients.empty()) return dump;
  EQ_ASSIGN_OR_RETURN(auto steps, ParseDumpSteps(options_.dump_gradients, total_steps_));
  if (is_first()) {
    dump = std::make_unique<GradientDump>(fs::path(options_.out) / kGradientFolder,
                                          std::move(steps), replica_->parameters());
  }
  return dump;
}

// Before the folder is prepared: the file may lie there, and a bad one shall do no harm.
Status Trainer::OpenFolder() {
  if (!options_.init.empty()) {
    EQ_ASSIGN_OR_RETURN(state_.init, LoadInitialWeights(options_.init, replica_->State()));
  }
  EQ_RETURN_IF_ERROR(PrepareRunFolder(options_));
  if (options_.resume) {
    EQ_RETURN_IF_ERROR(
        LoadRun(options_, comm_.world_size(), replica_.get(), &state_, progress_.get()));
  }
  EQ_ASSIGN_OR_RETURN(MetricsLog log,
                      MetricsLog::Open(fs::path(options_.out) / "metrics.jsonl", state_.step));
  log_ = std::make_unique<MetricsLog>(std::move(log));
  EQ_ASSIGN_OR_RETURN(
      MetricsLog certificate,
      MetricsLog::Open(fs::path(options_.out) / "certificate.jsonl", state_.step));
  certificate_log_ = std::make_unique<MetricsLog>(std::move(certificate));
  return Status::Ok();
}

// What may fail on one worker alone.
Status Trainer::SetUpHere() {
  EQ_RETURN_IF_ERROR(OpenData());
  EQ_RETURN_IF_ERROR(MakeReplica());
  steps_per_epoch_ = loader_->steps_per_epoch();
  total_steps_ = options_.steps > 0 ? options_.steps : options_.epochs * steps_per_epoch_;
  schedule_ = MakeSchedule(options_, total_steps_);
  progress_ = std::make_unique<Progress>(
      ProgressOptions{.total_steps = total_steps_,
                      .coordinates = coordinates_,
                      .world_size = comm_.world_size(),
                      .live = is_first() && !options_.quiet && isatty(STDERR_FILENO) == 1});
  EQ_ASSIGN_OR_RETURN(auto dump, MakeDump());
  if (is_first()) EQ_RETURN_IF_ERROR(OpenFolder());
  if (dump) EQ_RETURN_IF_ERROR(dump->WriteLayers());
  if (is_first() && !options_.quiet && !shares_.samples.empty()) {
    progress_->Note(ShareTable(shares_, options_.partition, dataset_->info().train_size));
  }
  dump_ = std::move(dump);
  return Status::Ok();
}

// Collective: weights, momentum and place in the run become worker 0's.
Status Trainer::ShareStart() {
  EQ_RETURN_IF_ERROR(replica_->TakeOver(comm_));
  EQ_ASSIGN_OR_RETURN(const auto steps, comm_.AllGather(static_cast<uint64_t>(state_.step)));
  EQ_ASSIGN_OR_RETURN(const auto skipped,
                      comm_.AllGather(static_cast<uint64_t>(state_.skipped_in_a_row)));
  state_.step = static_cast<int64_t>(steps[0]);
  state_.skipped_in_a_row = static_cast<int64_t>(skipped[0]);
  EQ_ASSIGN_OR_RETURN(state_.codec, ShareText(comm_, state_.codec));
  if (!state_.codec.empty()) EQ_RETURN_IF_ERROR(runner_->UseCodec(state_.codec));
  runner_->StartFromReplica();
  return Status::Ok();
}

Status Trainer::SetUp() {
  at::set_num_threads(ChooseThreads(options_, info_.workers_here));
  comm_.SetActivity("preparing the run");
  EQ_RETURN_IF_ERROR(agreement_.Agree(SetUpHere()));
  const RunnerPlace place{&comm_, replica_.get(), own_data_, total_steps_, Weights()};
  auto runner = MakeRunner(options_, place, std::move(dump_));
  EQ_RETURN_IF_ERROR(agreement_.Agree(runner.status()));
  runner_ = std::move(runner).value();
  EQ_RETURN_IF_ERROR(ShareStart());
  EQ_RETURN_IF_ERROR(agreement_.Agree(LoadMemory()));
  EQ_RETURN_IF_ERROR(agreement_.Agree(LoadCertificate()));
  const LoaderPosition start{state_.step / steps_per_epoch_, state_.step % steps_per_epoch_};
  EQ_ASSIGN_OR_RETURN(loader_, TrainLoader::Make(dataset_, loading_, start));
  return Status::Ok();
}

Status Trainer::Run() {
  int64_t& step = state_.step;
  const int64_t first = step;
  while (step < total_steps_) {
    if (step % steps_per_epoch_ == 0 || step == first) {
      EQ_RETURN_IF_ERROR(runner_->BeginEpoch(epoch_of(step)));
    }
    EQ_RETURN_IF_ERROR(TrainStep());
    if (options_.check_replicas == "every") EQ_RETURN_IF_ERROR(CheckReplicas());
    if (step % steps_per_epoch_ == 0 || step == total_steps_) EQ_RETURN_IF_ERROR(EndEpoch());
    const bool due = options_.checkpoint_every > 0 &&
                     (step % options_.checkpoint_every == 0 || step == total_steps_);
    if (due) EQ_RETURN_IF_ERROR(SaveAll());
  }
  EQ_RETURN_IF_ERROR(CheckReplicas());
  {
    const SharedModel shared(runner_.get());
    EQ_RETURN_IF_ERROR(Summarise());
  }
  EQ_RETURN_IF_ERROR(comm_.Barrier());  // nobody leaves while others still work
  runner_->Strike(FaultMoment::kEnd, last_step());
  return Status::Ok();
}

// What the codecs remember, of the step that the run goes on from.
Status Trainer::LoadMemory() {
  if (!runner_->remembers()) return Status::Ok();
  if (!options_.resume) RemoveWorkerCheckpoints(options_.out, comm_.rank());
  if (state_.step == 0 || options_.forget_memory) return Status::Ok();
  EQ_ASSIGN_OR_RETURN(const Checkpoint mine,
                      LoadWorker(options_, runner_->Identity(), state_.step, *replica_));
  return runner_->LoadMemory(mine);
}

// Worker 0 alone has one.
Status Trainer::LoadCertificate() {
  if (state_.certificate.is_null()) return Status::Ok();
  return runner_->certificate().LoadState(state_.certificate);
}

// Every worker's own part first: a checkpoint of the run has all that goes with it.
Status Trainer::SaveAll() {
  EQ_RETURN_IF_ERROR(ShareBytes());
  EQ_RETURN_IF_ERROR(ShareCounts());
  EQ_RETURN_IF_ERROR(runner_->certificate().Gather(&comm_));
  comm_.SetActivity("saving a checkpoint");
  runner_->Strike(FaultMoment::kCheckpoint, last_step());
  Checkpoint mine;
  if (runner_->remembers()) EQ_RETURN_IF_ERROR(runner_->SaveMemory(&mine));
  const SharedModel shared(runner_.get());
  if (runner_->remembers()) {
    EQ_RETURN_IF_ERROR(agreement_.Agree(
        SaveWorker(options_, runner_->Identity(), state_.step, *replica_, std::move(mine))));
  }
  if (!is_first()) return Status::Ok();
  state_.codec = runner_->AdaptedCodec();
  state_.certificate = runner_->certificate().SaveState();
  return SaveRun(options_, comm_.world_size(), *replica_, &state_);
}

Status Trainer::TrainStep() {
  const bool last_chance = state_.skipped_in_a_row + 1 >= options_.max_skipped;
  EQ_ASSIGN_OR_RETURN(
      StepResult result,
      runner_->Run(state_.step, LearningRate(schedule_, state_.step), last_chance, *loader_));
  result.record.epoch = epoch_of(state_.step);
  ++state_.step;
  state_.record.AddStep(result.record);
  if (is_first()) {
    progress_->Step(result.record);
    EQ_RETURN_IF_ERROR(log_->Write(result.record));
  }
  if (!result.outcome.skipped) {
    state_.skipped_in_a_row = 0;
    return Status::Ok();
  }
  if (is_first()) {
    progress_->Note(fmt::format("step {} was skipped: {}", state_.step, result.outcome.reason));
  }
  return ++state_.skipped_in_a_row < options_.max_skipped ? Status::Ok()
                                                          : GiveUp(result.outcome);
}

Status Trainer::GiveUp(const StepOutcome& outcome) {
  EQ_ASSIGN_OR_RETURN(const std::string where, runner_->NonFiniteLayer(outcome.reason));
  return agreement_.Known(NonFinite(
      fmt::format("gave up at step {} after {} skipped steps in a row: {}. A lower --lr "
                  "or a --warmup may help; --max-skipped sets how many are allowed",
                  state_.step, state_.skipped_in_a_row, where)));
}

// Collective: the totals count the workers' mean, since frames of coded bytes differ in length.
Status Trainer::ShareBytes() {
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

Status Trainer::EndEpoch() {
  EQ_RETURN_IF_ERROR(ShareBytes());
  EQ_RETURN_IF_ERROR(CheckReplicas());
  const int64_t epoch = epoch_of(state_.step - 1);
  const bool due = state_.step == total_steps_ ||
                   (options_.eval_every > 0 && epoch % options_.eval_every == 0);
  Evaluation evaluation;
  if (due) {
    const Stopwatch watch;
    comm_.SetActivity("in an evaluation");
    runner_->Strike(FaultMoment::kEvaluation, last_step());
    const SharedModel shared(runner_.get());
    EQ_RETURN_IF_ERROR(runner_->ShareBuffers());
    EQ_ASSIGN_OR_RETURN(evaluation, Evaluate(*replica_, *test_loader_, comm_, agreement_));
    state_.record.AddOverhead(watch.Seconds(), 0);
  }
  if (is_first()) progress_->Epoch(epoch, state_.record.epoch(), evaluation.accuracy);
  state_.record.EndEpoch(epoch, evaluation.accuracy, evaluation.loss);
  return Certify(epoch);
}

// Collective: the epoch's variance and bits by layer, against their bounds.
Status Trainer::Certify(int64_t epoch) {
  Certificate& certificate = runner_->certificate();
  EQ_RETURN_IF_ERROR(certificate.Gather(&comm_));
  if (!is_first()) return Status::Ok();
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

Status Trainer::CheckReplicas() {
  if (!runner_->has_replicas()) return Status::Ok();
  const SharedModel shared(runner_.get());
  EQ_ASSIGN_OR_RETURN(const std::vector<uint64_t> hashes, comm_.AllGather(replica_->Hash()));
  const std::string odd = OddReplicas(hashes);
  if (odd.empty()) return Status::Ok();
  replicas_identical_ = false;
  EQ_RETURN_IF_ERROR(Summarise());
  return agreement_.Known(Internal("after step " + std::to_string(state_.step) +
                                   " the weights of worker(s) " + odd +
                                   " differ from the others': replicas must be identical"));
}

// Collective: adds what the runner has counted since the last call to the run's counts.
Status Trainer::ShareCounts() {
  const Runner::Counts now = runner_->counts();
  EQ_ASSIGN_OR_RETURN(const auto uploads, comm_.AllGather(now.uploads - counted_.uploads));
  state_.rounds += now.rounds - counted_.rounds;
  counted_ = now;
  state_.uploads.resize(uploads.size());
  for (size_t w = 0; w < uploads.size(); ++w) state_.uploads[w] += uploads[w];
  return {};
}

// Collective, while the shared model is shown.
Status Trainer::Summarise() {
  EQ_RETURN_IF_ERROR(ShareCounts());
  RunFacts facts = Facts();
  facts.rounds = state_.rounds;
  facts.uploads = state_.uploads;
  return is_first() ? WriteSummary(options_, info_, facts, state_.record) : Status::Ok();
}

RunFacts Trainer::Facts() const {
  return {.world_size = comm_.world_size(),
          .coordinates = coordinates_,
          .steps_per_epoch = steps_per_epoch_,
          .replicas_identical = replicas_identical_,
          .weights_hash = replica_->Hash(),
          .init = state_.init,
          .rounds = 0,
          .uploads = {},
          .policy = runner_->Policy(),
          .samples = runner_->Samples(),
          .shares = shares_.samples.empty() ? nullptr : &shares_};
}

}  // namespace

Status TrainAsWorker(const TrainOptions& options, const CommunicatorOptions& where,
                     const RunInfo& info) {
  KeepTorchQuiet();
  EQ_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm, Communicator::Connect(where));
  comm->SetFarewell("its part of the run is done");
  Trainer trainer(options, info, comm.get());
  Status status = trainer.Train();
  // What all know of already needs no telling; any other trouble the others would only notice
  // as silence.
  if (!status.ok() && !trainer.agreement().on_error()) comm->Abort(status);
  return status;
}

}  // namespace elastiquant
