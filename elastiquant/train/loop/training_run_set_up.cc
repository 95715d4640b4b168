#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "elastiquant/base/contains.h"
#include "elastiquant/base/json_text.h"
#include "elastiquant/data/own_share.h"
#include "elastiquant/runs/file.h"
#include "elastiquant/train/fingerprint.h"
#include "elastiquant/train/loop/freed_memory.h"
#include "elastiquant/train/loop/initial_weights.h"
#include "elastiquant/train/loop/share_table.h"
#include "elastiquant/train/loop/training_run.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kEvaluationBatch = 128;
// A run that was killed may take a moment to end.
constexpr std::chrono::seconds kPatienceWithFolder{3};

int ChooseThreads(const TrainOptions& options, int workers_here) {
  if (options.threads > 0) return options.threads;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, workers_here));
}

}  // namespace

Status TrainingRun::OpenData() {
  EQ_ASSIGN_OR_RETURN(const int64_t context, ContextOf(options_.model));
  const DatasetOptions data{.seed = options_.data_seed,
                            .image_size = options_.image_size,
                            .generated_train = options_.generated_train,
                            .generated_test = options_.generated_test,
                            .context = context};
  EQ_ASSIGN_OR_RETURN(dataset_, OpenDataset(options_.data, data));
  // Nobody looks at the samples where gradients are replayed.
  loading_ = {.batch = options_.replay.empty() ? options_.batch : 1,
              .rank = worker_,
              .world_size = workers_,
              .seed = options_.seed,
              .augment = options_.augment,
              .threads = options_.loader_threads};
  EQ_RETURN_IF_ERROR(DealData());
  EQ_ASSIGN_OR_RETURN(loader_, TrainLoader::Make(dataset_, loading_));
  return OpenTestData();
}

// Which is dealt anew to those that are there.
Status TrainingRun::OpenTestData() {
  LoaderOptions testing = loading_;
  testing.batch = std::max(options_.batch, kEvaluationBatch);
  testing.rank = comm_.rank();
  testing.world_size = comm_.world_size();
  EQ_ASSIGN_OR_RETURN(test_loader_, TestLoader::Make(dataset_, testing));
  return Status::Ok();
}

// Every worker finds by itself what lies on it, and what on the others.
Status TrainingRun::DealData() {
  EQ_ASSIGN_OR_RETURN(const Partition partition, ParsePartition(options_.partition));
  own_data_ = dataset_;
  if (partition.is_iid() && !NeedsShares(options_)) return Status::Ok();
  EQ_ASSIGN_OR_RETURN(const std::vector<int64_t> labels, dataset_->Labels(Split::kTrain));
  EQ_ASSIGN_OR_RETURN(shares_, DealShares(labels, dataset_->info().classes, partition,
                                          options_.seed, workers_));
  EQ_ASSIGN_OR_RETURN(own_data_,
                      OwnShareOf(dataset_, shares_.samples[static_cast<size_t>(worker_)]));
  loading_.share = shares_.samples[static_cast<size_t>(worker_)];
  loading_.dealt = shares_.Total();
  return Status::Ok();
}

// What each worker counts for in a mean, by rank: as many as it has samples. There are none if
// all count the same.
std::vector<double> TrainingRun::Weights() const {
  const std::vector<int64_t> volumes = shares_.Volumes();
  if (crew_ == nullptr || volumes.empty()) return {volumes.begin(), volumes.end()};
  std::vector<double> weights;
  for (const int worker : crew_->group()) {
    weights.push_back(static_cast<double>(volumes[static_cast<size_t>(worker)]));
  }
  return weights;
}

Status TrainingRun::MakeReplica() {
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

Status TrainingRun::MakeDump() {
  if (options_.dump_gradients.empty()) return Status::Ok();
  EQ_ASSIGN_OR_RETURN(auto steps, ParseDumpSteps(options_.dump_gradients, total_steps_));
  if (is_first()) {
    dump_ = std::make_unique<GradientDump>(fs::path(options_.out) / kGradientFolder,
                                           std::move(steps), replica_->parameters());
  }
  return Status::Ok();
}

// Nothing is taken away from the folder yet, in which the file of --init may lie, too.
Status TrainingRun::OpenFolder() {
  if (!options_.init.empty()) {
    EQ_ASSIGN_OR_RETURN(state_.init, LoadInitialWeights(options_.init, replica_->State()));
  }
  EQ_RETURN_IF_ERROR(MakeRunFolder(options_));
  EQ_ASSIGN_OR_RETURN(FolderLock lock, FolderLock::Take(options_.out, kPatienceWithFolder));
  folder_lock_.emplace(std::move(lock));
  if (!options_.resume) return Status::Ok();
  EQ_RETURN_IF_ERROR(LoadRun(options_, workers_, replica_.get(), &state_, progress_.get()));
  if (state_.step <= total_steps_) return Status::Ok();
  return InvalidArgument(
      fmt::format("the run in {} has made {} steps already, and would be over after {}: give "
                  "more --steps or --epochs, or another --out",
                  options_.out, state_.step, total_steps_));
}

// Replaces an earlier run in the folder. Must be called when all workers can start this one,
// because the earlier one cannot be had back.
Status TrainingRun::TakeFolder() {
  if (!is_first()) return Status::Ok();
  if (!options_.resume) ClearRunFolder(options_);
  if (dump_) EQ_RETURN_IF_ERROR(dump_->WriteLayers());
  return OpenLogs();
}

Status TrainingRun::OpenLogs() {
  // Whoever takes the place of a lost worker 0 may be on another machine, without the folder.
  EQ_RETURN_IF_ERROR(MakeFolder(options_.out));
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
Status TrainingRun::SetUpHere() {
  EQ_RETURN_IF_ERROR(OpenData());
  EQ_RETURN_IF_ERROR(MakeReplica());
  EQ_ASSIGN_OR_RETURN(state_.edges, DescribeEdges(options_, workers_));
  state_.samples = dataset_->info().train_size;
  steps_per_epoch_ = loader_->steps_per_epoch();
  total_steps_ = options_.steps > 0 ? options_.steps : options_.epochs * steps_per_epoch_;
  schedule_ = MakeSchedule(options_, total_steps_);
  progress_ = std::make_unique<Progress>(
      ProgressOptions{.total_steps = total_steps_,
                      .coordinates = coordinates_,
                      .world_size = workers_,
                      .live = is_first() && !options_.quiet && isatty(STDERR_FILENO) == 1});
  EQ_RETURN_IF_ERROR(MakeDump());
  if (is_first()) EQ_RETURN_IF_ERROR(OpenFolder());
  if (is_first() && !options_.quiet && !shares_.samples.empty()) {
    progress_->Note(ShareTable(shares_, options_.partition, dataset_->info().train_size));
  }
  return Status::Ok();
}

// What has to be the same on all workers for them to make the same steps and meet at them.
nlohmann::json TrainingRun::Alike() const {
  nlohmann::json alike = OptionsOfAll(options_, workers_, state_.edges);
  const DatasetInfo& data = dataset_->info();
  alike["training samples of --data"] = data.train_size;
  alike["test samples of --data"] = data.test_size;
  alike["classes of --data"] = data.classes;
  return alike;
}

// Collective. Steps that some workers make and others do not would end in a hang, or in an
// error that blames the network.
Status TrainingRun::CheckAllAlike() {
  nlohmann::json mine = Alike();
  mine["--resume"] = options_.resume;
  mine["--forget-memory"] = options_.forget_memory;
  EQ_ASSIGN_OR_RETURN(const std::string first, ShareText(comm_, JsonText(mine)));
  return agreement_.Agree(CheckAlike(worker_, nlohmann::json::parse(first), mine));
}

// Collective: weights, momentum and place in the run become worker 0's.
Status TrainingRun::ShareStart() {
  // Runs that replay gradients, and cannot be resumed, all begin with the weights of the seed.
  if (options_.replay.empty()) EQ_RETURN_IF_ERROR(replica_->TakeOver(comm_));
  EQ_ASSIGN_OR_RETURN(const auto steps, comm_.AllGather(static_cast<uint64_t>(state_.step)));
  EQ_ASSIGN_OR_RETURN(const auto skipped,
                      comm_.AllGather(static_cast<uint64_t>(state_.skipped_in_a_row)));
  state_.step = static_cast<int64_t>(steps[0]);
  state_.skipped_in_a_row = static_cast<int64_t>(skipped[0]);
  EQ_ASSIGN_OR_RETURN(state_.codec, ShareText(comm_, state_.codec));
  EQ_ASSIGN_OR_RETURN(const std::string absent, ShareText(comm_, EncodeGroup(state_.absent)));
  if (!absent.empty()) {
    EQ_ASSIGN_OR_RETURN(state_.absent, ParseGroup(absent));
  }
  if (!state_.codec.empty()) EQ_RETURN_IF_ERROR(runner_->UseCodec(state_.codec));
  if (crew_) {
    EQ_ASSIGN_OR_RETURN(const std::string news, ShareText(comm_, News().dump()));
    TakeOver(nlohmann::json::parse(news));
  } else {
    EQ_ASSIGN_OR_RETURN(const std::string uploads,
                        ShareText(comm_, nlohmann::json(state_.uploads).dump()));
    state_.uploads = nlohmann::json::parse(uploads).get<std::vector<uint64_t>>();
  }
  runner_->StartFromReplica();
  return Status::Ok();
}

Status TrainingRun::SetUp() {
  at::set_num_threads(ChooseThreads(options_, info_.workers_here));
  KeepFreedMemory();
  comm_.SetActivity("preparing the run");
  if (is_newcomer()) {
    EQ_RETURN_IF_ERROR(SetUpHere());
    return Regroup(/*at_boundary=*/false);
  }
  if (crew_) group_ = crew_->group();
  EQ_RETURN_IF_ERROR(agreement_.Agree(SetUpHere()));
  EQ_RETURN_IF_ERROR(CheckAllAlike());
  EQ_RETURN_IF_ERROR(agreement_.Agree(MakeTheRunner()));
  EQ_RETURN_IF_ERROR(agreement_.Agree(TakeFolder()));
  EQ_RETURN_IF_ERROR(ShareStart());
  EQ_RETURN_IF_ERROR(agreement_.Agree(LoadMemory()));
  EQ_RETURN_IF_ERROR(ReplaceAbsent());
  EQ_RETURN_IF_ERROR(agreement_.Agree(LoadCertificate()));
  const LoaderPosition start{state_.step / steps_per_epoch_, state_.step % steps_per_epoch_};
  EQ_ASSIGN_OR_RETURN(loader_, TrainLoader::Make(dataset_, loading_, start));
  if (SharesSteps(options_)) pool_ = std::make_unique<StepPool>(&comm_, state_.step);
  return Status::Ok();
}

Status TrainingRun::MakeTheRunner() {
  const RunnerPlace place{&comm_,  replica_.get(), own_data_, total_steps_,  Weights(),
                          worker_, workers_,       loading_,  is_newcomer(), crew_ != nullptr};
  EQ_ASSIGN_OR_RETURN(runner_, MakeRunner(options_, place, dump_.get()));
  return Status::Ok();
}

// What the codecs remember, of the step that the run goes on from.
Status TrainingRun::LoadMemory() {
  if (!runner_->remembers()) return Status::Ok();
  if (!options_.resume) RemoveWorkerCheckpoints(options_.out, worker_);
  if (state_.step == 0 || options_.forget_memory) return Status::Ok();
  if (Contains(state_.absent, worker_)) return Status::Ok();
  EQ_ASSIGN_OR_RETURN(const Checkpoint mine,
                      LoadWorker(options_, runner_->Identity(), state_.step, *replica_));
  return runner_->LoadMemory(mine);
}

// Worker 0 alone has one.
Status TrainingRun::LoadCertificate() {
  if (state_.certificate.is_null()) return Status::Ok();
  return runner_->certificate().LoadState(state_.certificate);
}

}  // namespace elastiquant
