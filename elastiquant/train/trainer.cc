#include "elastiquant/train/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <functional>
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
#include "elastiquant/net/crew.h"
#include "elastiquant/protocol/round_course.h"
#include "elastiquant/runs/progress.h"
#include "elastiquant/runs/run_record.h"
#include "elastiquant/train/evaluate.h"
#include "elastiquant/train/gradient_dump.h"
#include "elastiquant/train/initial_weights.h"
#include "elastiquant/train/replica.h"
#include "elastiquant/train/replica_check.h"
#include "elastiquant/train/reunion.h"
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

// What follows each step, in this order. Each of these is for all workers together, but for the
// step itself, and each is done once, whatever groups the workers are in meanwhile.
enum class Station : uint64_t {
  kStep,
  kRollCall,  // between two rounds: newcomers are taken
  kMuster,    // and it is seen whether enough are there
  kCheck,     // of replicas
  kEpoch,
  kSave,
  kEnd,
};

// Behind what a runner does after the step.
constexpr uint64_t MilestoneAt(int64_t step, Station station) {
  return MilestoneOf(step, static_cast<uint64_t>(station) << (kSlotBits - 3));
}

// The course of a run: what happens at its start, after each step and epoch, and at its end.
class Trainer {
 public:
  // `crew` is null if the loss of a worker ends the run.
  Trainer(const TrainOptions& options, const RunInfo& info, Communicator* comm, Crew* crew)
      : options_(options),
        info_(info),
        comm_(*comm),
        crew_(crew),
        worker_(crew ? crew->worker() : comm->rank()),
        workers_(crew ? crew->workers() : comm->world_size()),
        agreement_(comm) {}

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
  Status RunInGroup();
  Status FinishStep();
  Status FinishRun();
  bool is_newcomer() const { return crew_ != nullptr && crew_->is_newcomer(); }
  bool is_first() const { return comm_.rank() == 0 && !is_newcomer(); }
  int64_t last_step() const { return state_.step - 1; }
  int64_t epoch_of(int64_t step) const { return step / steps_per_epoch_ + 1; }

  Status OpenData();
  Status OpenTestData();
  Status DealData();
  std::vector<double> Weights() const;
  Status MakeReplica();
  Status SetUpHere();
  Status OpenFolder();
  Status OpenLogs();
  Status MakeTheRunner();
  Result<std::unique_ptr<GradientDump>> MakeDump() const;
  Status ShareStart();
  Status LoadMemory();
  Status ReplaceAbsent();
  Status LoadCertificate();
  Status SaveAll();
  std::vector<int> Absent() const;

  bool IsPast(Station station) const;
  Status At(Station station, const std::function<Status()>& work);
  Status RollCall();
  Status CheckGroup();
  Status Regroup(bool at_boundary);
  Status Rejoin();
  nlohmann::json News() const;
  void TakeIn(const nlohmann::json& news);
  void TakeOver(const nlohmann::json& news);
  Status StartAnew(const Reunion& reunion);
  void TellChanges(const nlohmann::json& news);

  Status TrainStep();
  Status GiveUp(const StepOutcome& outcome);
  Status ShareBytes();
  Status EndEpoch();
  Status MeasureEpoch();
  Status Certify(int64_t epoch);
  Status CheckReplicas();
  RunFacts Facts() const;
  Status ShareCounts();
  Status Summarise();

  const TrainOptions options_;
  const RunInfo info_;
  Communicator& comm_;
  Crew* const crew_;
  const int worker_, workers_;  // this one's name, and the number of all
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

  Station station_ = Station::kStep;  // that is next
  uint64_t furthest_ = 0;             // what some worker of the group has passed already
  bool between_rounds_ = false;
  std::vector<int> group_;  // as this worker has last gone on in one
  bool is_over_ = false;    // the others have finished the run
  Evaluation evaluation_;   // the last one
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
Status Trainer::OpenTestData() {
  LoaderOptions testing = loading_;
  testing.batch = std::max(options_.batch, kEvaluationBatch);
  testing.rank = comm_.rank();
  testing.world_size = comm_.world_size();
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
                                          options_.seed, workers_));
  EQ_ASSIGN_OR_RETURN(own_data_,
                      OwnShareOf(dataset_, shares_.samples[static_cast<size_t>(worker_)]));
  loading_.share = shares_.samples[static_cast<size_t>(worker_)];
  loading_.dealt = shares_.Total();
  return Status::Ok();
}

// What each worker counts for in a mean, by rank: as many as it has samples. There are none if
// all count the same.
std::vector<double> Trainer::Weights() const {
  const std::vector<int64_t> volumes = shares_.Volumes();
  if (crew_ == nullptr || volumes.empty()) return {volumes.begin(), volumes.end()};
  std::vector<double> weights;
  for (const int worker : crew_->group()) {
    weights.push_back(static_cast<double>(volumes[static_cast<size_t>(worker)]));
  }
  return weights;
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
    EQ_RETURN_IF_ERROR(LoadRun(options_, workers_, replica_.get(), &state_, progress_.get()));
  }
  return OpenLogs();
}

Status Trainer::OpenLogs() {
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
                      .world_size = workers_,
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
  EQ_ASSIGN_OR_RETURN(const std::string absent, ShareText(comm_, EncodeGroup(state_.absent)));
  if (!absent.empty()) {
    EQ_ASSIGN_OR_RETURN(state_.absent, ParseGroup(absent));
  }
  if (!state_.codec.empty()) EQ_RETURN_IF_ERROR(runner_->UseCodec(state_.codec));
  if (crew_) {
    EQ_ASSIGN_OR_RETURN(const std::string news, ShareText(comm_, News().dump()));
    TakeOver(nlohmann::json::parse(news));
  }
  runner_->StartFromReplica();
  return Status::Ok();
}

Status Trainer::SetUp() {
  at::set_num_threads(ChooseThreads(options_, info_.workers_here));
  comm_.SetActivity("preparing the run");
  if (is_newcomer()) {
    EQ_RETURN_IF_ERROR(SetUpHere());
    return Regroup(/*at_boundary=*/false);
  }
  if (crew_) group_ = crew_->group();
  EQ_RETURN_IF_ERROR(agreement_.Agree(SetUpHere()));
  EQ_RETURN_IF_ERROR(agreement_.Agree(MakeTheRunner()));
  EQ_RETURN_IF_ERROR(ShareStart());
  EQ_RETURN_IF_ERROR(agreement_.Agree(LoadMemory()));
  EQ_RETURN_IF_ERROR(ReplaceAbsent());
  EQ_RETURN_IF_ERROR(agreement_.Agree(LoadCertificate()));
  const LoaderPosition start{state_.step / steps_per_epoch_, state_.step % steps_per_epoch_};
  EQ_ASSIGN_OR_RETURN(loader_, TrainLoader::Make(dataset_, loading_, start));
  return Status::Ok();
}

Status Trainer::MakeTheRunner() {
  const RunnerPlace place{&comm_,    replica_.get(), own_data_, total_steps_,
                          Weights(), worker_,        workers_};
  EQ_ASSIGN_OR_RETURN(runner_, MakeRunner(options_, place, std::move(dump_)));
  return Status::Ok();
}

Status Trainer::Run() {
  while (!is_over_) {
    const Status status = RunInGroup();
    const bool may_go_on = crew_ != nullptr && crew_->is_broken();
    if (!may_go_on || status.code() != StatusCode::kUnavailable) return status;
    EQ_RETURN_IF_ERROR(Regroup(/*at_boundary=*/false));
  }
  return Status::Ok();
}

// From wherever this worker stands to the end of the run, if no worker is lost.
Status Trainer::RunInGroup() {
  const int64_t& step = state_.step;
  const int64_t first = step;
  while (!is_over_ && (step < total_steps_ || station_ != Station::kStep)) {
    if (station_ == Station::kStep) {
      if (step % steps_per_epoch_ == 0 || step == first) {
        EQ_RETURN_IF_ERROR(runner_->BeginEpoch(epoch_of(step)));
      }
      EQ_RETURN_IF_ERROR(TrainStep());
      station_ = Station::kRollCall;
    }
    EQ_RETURN_IF_ERROR(FinishStep());
  }
  return is_over_ ? Status::Ok() : FinishRun();
}

Status Trainer::FinishStep() {
  const int64_t& step = state_.step;  // who comes back may find itself at another one
  if (crew_ && between_rounds_ && step < total_steps_) {
    EQ_RETURN_IF_ERROR(At(Station::kRollCall, [this] { return RollCall(); }));
    if (is_over_) return Status::Ok();
    EQ_RETURN_IF_ERROR(At(Station::kMuster, [this] { return CheckGroup(); }));
  }
  if (options_.check_replicas == "every") {
    EQ_RETURN_IF_ERROR(At(Station::kCheck, [this] { return CheckReplicas(); }));
  }
  if (step % steps_per_epoch_ == 0 || step == total_steps_) {
    if (station_ <= Station::kEpoch) EQ_RETURN_IF_ERROR(EndEpoch());
  }
  if (options_.checkpoint_every > 0 &&
      (step % options_.checkpoint_every == 0 || step == total_steps_)) {
    EQ_RETURN_IF_ERROR(At(Station::kSave, [this] { return SaveAll(); }));
  }
  station_ = Station::kStep;
  return Status::Ok();
}

Status Trainer::FinishRun() {
  EQ_RETURN_IF_ERROR(CheckReplicas());
  {
    const SharedModel shared(runner_.get());
    EQ_RETURN_IF_ERROR(Summarise());
  }
  EQ_RETURN_IF_ERROR(comm_.Barrier());         // nobody leaves while others still work
  if (crew_) (void)crew_->End(/*well=*/true);  // there is nothing more to be lost
  runner_->Strike(FaultMoment::kEnd, last_step());
  return Status::Ok();
}

// Whether another worker of the group has been there with those that were lost.
bool Trainer::IsPast(Station station) const {
  return MilestoneAt(state_.step, station) < furthest_;
}

// Does the work of a station, if it is yet to be done.
Status Trainer::At(Station station, const std::function<Status()>& work) {
  if (station_ > station) return Status::Ok();
  station_ = station;
  if (!IsPast(station)) EQ_RETURN_IF_ERROR(work());
  station_ = static_cast<Station>(static_cast<uint64_t>(station) + 1);
  return Status::Ok();
}

// Collective. If any worker has heard of newcomers, the group makes way for one that has them,
// which calls its roll again.
Status Trainer::RollCall() {
  while (!is_over_) {
    EQ_ASSIGN_OR_RETURN(const auto heard, comm_.AllGather(crew_->newcomers_wait() ? 1 : 0));
    if (std::ranges::all_of(heard, [](uint64_t h) { return h == 0; })) break;
    EQ_RETURN_IF_ERROR(Regroup(/*at_boundary=*/true));
  }
  return Status::Ok();
}

// Collective. With too few workers the run ends here, where it can go on later.
Status Trainer::CheckGroup() {
  const int there = comm_.world_size();
  if (there >= options_.least_workers) return Status::Ok();
  EQ_RETURN_IF_ERROR(SaveAll());
  return agreement_.Known(Unavailable(fmt::format(
      "of {} workers {} {} left, fewer than --least-workers {}: the run was saved after step "
      "{}, from which --resume goes on",
      workers_, there, there == 1 ? "is" : "are", options_.least_workers, state_.step)));
}

// Goes on in the next group, at the same place. Newcomers begin with the roll call.
Status Trainer::Regroup(bool at_boundary) {
  for (;;) {
    if (runner_) runner_->rounds()->LeaveGroup();
    EQ_ASSIGN_OR_RETURN(const bool goes_on, crew_->Regroup(at_boundary));
    is_over_ = !goes_on;
    if (is_over_) return Status::Ok();
    comm_.SetActivity("going on in another group of workers");
    const Status status = Rejoin();
    if (status.ok() || !crew_->is_broken()) return status;
    at_boundary = false;  // one more was lost meanwhile
  }
}

Status Trainer::Rejoin() {
  const bool afresh = is_newcomer();
  EQ_RETURN_IF_ERROR(runner_ ? runner_->rounds()->JoinGroup(Weights(), afresh)
                             : MakeTheRunner());
  RoundRunner& rounds = *runner_->rounds();
  // What follows the last step is done if the next one may begin.
  const Station next = station_ == Station::kStep ? Station::kEnd : station_;
  const uint64_t reached =
      std::max({rounds.reached(), furthest_, MilestoneAt(state_.step, next)});
  EQ_ASSIGN_OR_RETURN(const Reunion reunion, Reunite(comm_, reached, afresh, News()));
  EQ_RETURN_IF_ERROR(HandOn(comm_, reunion, afresh, *replica_, rounds));
  furthest_ = reunion.furthest;
  rounds.Regroup(furthest_);
  TakeIn(reunion.news);
  if (afresh) EQ_RETURN_IF_ERROR(StartAnew(reunion));
  TellChanges(reunion.news);
  crew_->Settle();
  EQ_RETURN_IF_ERROR(OpenTestData());
  if (is_first() && !log_) return OpenLogs();
  if (!is_first()) {
    log_.reset();
    certificate_log_.reset();
  }
  return Status::Ok();
}

// What others have to know of the run to go on with it.
nlohmann::json Trainer::News() const {
  return {{"group", group_},
          {"losses", state_.losses},
          {"accuracy", std::bit_cast<uint64_t>(evaluation_.accuracy)},
          {"loss", std::bit_cast<uint64_t>(evaluation_.loss)},
          {"step", state_.step},
          {"skipped", state_.skipped_in_a_row},
          {"rounds", state_.rounds},
          {"uploads", state_.uploads},
          {"record", state_.record.SaveState()},
          {"init", state_.init}};
}

void Trainer::TakeIn(const nlohmann::json& news) {
  state_.losses = news.at("losses");
  evaluation_ = {std::bit_cast<double>(news.at("accuracy").get<uint64_t>()),
                 std::bit_cast<double>(news.at("loss").get<uint64_t>())};
}

// This worker may be the one that tells of the whole run some day.
void Trainer::TakeOver(const nlohmann::json& news) {
  TakeIn(news);
  state_.step = news.at("step");
  state_.skipped_in_a_row = news.at("skipped");
  state_.rounds = news.at("rounds");
  state_.uploads = news.at("uploads").get<std::vector<uint64_t>>();
  state_.init = news.at("init");
  state_.record = {};
  state_.record.LoadState(news.at("record"));
}

// This worker begins where the others are, as one that has done nothing yet.
Status Trainer::StartAnew(const Reunion& reunion) {
  TakeOver(reunion.news);
  station_ = Station::kRollCall;
  between_rounds_ = true;
  counted_ = runner_->counts();
  runner_->rounds()->StartFromShared(state_.step);
  const LoaderPosition start{state_.step / steps_per_epoch_, state_.step % steps_per_epoch_};
  EQ_ASSIGN_OR_RETURN(loader_, TrainLoader::Make(dataset_, loading_, start));
  return Status::Ok();
}

// Notes who was lost since the group of the source, and who is back.
void Trainer::TellChanges(const nlohmann::json& news) {
  const auto before = news.at("group").get<std::vector<int>>();
  const int64_t step = news.at("step");
  group_ = crew_->group();
  const auto note = [this](const std::string& text) {
    if (is_first()) progress_->Note(text);
  };
  for (const int worker : before) {
    if (std::ranges::find(group_, worker) != group_.end()) continue;
    const int64_t round = step / RoundOf(options_) + 1;
    state_.losses.push_back(
        {{"worker", worker}, {"step", step}, {"round", round}, {"rejoined", nullptr}});
    note(fmt::format("worker {} was lost in round {}: going on with {}", worker, round,
                     group_.size()));
  }
  for (const int worker : group_) {
    for (nlohmann::json& loss : state_.losses) {
      if (loss["worker"] != worker || !loss["rejoined"].is_null()) continue;
      loss["rejoined"] = step;
      note(fmt::format("worker {} is back after step {}: going on with {}", worker, step,
                       group_.size()));
    }
  }
}

// What the codecs remember, of the step that the run goes on from.
Status Trainer::LoadMemory() {
  if (!runner_->remembers()) return Status::Ok();
  if (!options_.resume) RemoveWorkerCheckpoints(options_.out, worker_);
  if (state_.step == 0 || options_.forget_memory) return Status::Ok();
  if (std::ranges::find(state_.absent, worker_) != state_.absent.end()) return Status::Ok();
  EQ_ASSIGN_OR_RETURN(const Checkpoint mine,
                      LoadWorker(options_, runner_->Identity(), state_.step, *replica_));
  return runner_->LoadMemory(mine);
}

// Collective. Those that were not there when the run was saved begin as one does that comes
// back.
Status Trainer::ReplaceAbsent() {
  RoundRunner* const rounds = runner_->rounds();
  const bool matters = state_.step > 0 && !options_.forget_memory && rounds != nullptr;
  if (!matters || state_.absent.empty()) return Status::Ok();
  const bool mine = std::ranges::find(state_.absent, worker_) != state_.absent.end();
  EQ_ASSIGN_OR_RETURN(const Reunion reunion, Reunite(comm_, 0, mine, News()));
  EQ_RETURN_IF_ERROR(HandOn(comm_, reunion, mine, *replica_, *rounds));
  rounds->Regroup(0);
  if (mine) rounds->StartFromShared(state_.step);
  for (nlohmann::json& loss : state_.losses) {
    if (loss["rejoined"].is_null()) loss["rejoined"] = state_.step;
  }
  state_.absent.clear();
  return Status::Ok();
}

// Worker 0 alone has one.
Status Trainer::LoadCertificate() {
  if (state_.certificate.is_null()) return Status::Ok();
  return runner_->certificate().LoadState(state_.certificate);
}

std::vector<int> Trainer::Absent() const {
  std::vector<int> absent;
  for (int w = 0; crew_ != nullptr && w < workers_; ++w) {
    if (std::ranges::find(group_, w) == group_.end()) absent.push_back(w);
  }
  return absent;
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
  state_.absent = Absent();
  return SaveRun(options_, workers_, *replica_, &state_);
}

Status Trainer::TrainStep() {
  if (crew_) EQ_RETURN_IF_ERROR(crew_->Check());
  const bool last_chance = state_.skipped_in_a_row + 1 >= options_.max_skipped;
  EQ_ASSIGN_OR_RETURN(
      StepResult result,
      runner_->Run(state_.step, LearningRate(schedule_, state_.step), last_chance, *loader_));
  result.record.epoch = epoch_of(state_.step);
  ++state_.step;
  between_rounds_ = result.ends_round;
  state_.record.AddStep(result.record);
  // One that was frozen may be the first no more, and learns of it before the next step.
  if (is_first() && (crew_ == nullptr || crew_->Check().ok())) {
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

// If others have measured already, this worker was told what came of it.
Status Trainer::EndEpoch() {
  EQ_RETURN_IF_ERROR(At(Station::kEpoch, [this] { return MeasureEpoch(); }));
  const int64_t epoch = epoch_of(state_.step - 1);
  if (is_first()) progress_->Epoch(epoch, state_.record.epoch(), evaluation_.accuracy);
  state_.record.EndEpoch(epoch, evaluation_.accuracy, evaluation_.loss);
  return is_first() ? Certify(epoch) : Status::Ok();
}

// Collective.
Status Trainer::MeasureEpoch() {
  EQ_RETURN_IF_ERROR(ShareBytes());
  EQ_RETURN_IF_ERROR(CheckReplicas());
  const int64_t epoch = epoch_of(state_.step - 1);
  const bool due = state_.step == total_steps_ ||
                   (options_.eval_every > 0 && epoch % options_.eval_every == 0);
  evaluation_ = {};
  if (due) {
    const Stopwatch watch;
    comm_.SetActivity("in an evaluation");
    runner_->Strike(FaultMoment::kEvaluation, last_step());
    const SharedModel shared(runner_.get());
    EQ_RETURN_IF_ERROR(runner_->ShareBuffers());
    EQ_ASSIGN_OR_RETURN(evaluation_, Evaluate(*replica_, *test_loader_, comm_, agreement_));
    state_.record.AddOverhead(watch.Seconds(), 0);
  }
  return runner_->certificate().Gather(&comm_);
}

// The epoch's variance and bits by layer, against their bounds.
Status Trainer::Certify(int64_t epoch) {
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
  state_.uploads.resize(static_cast<size_t>(workers_));
  for (size_t r = 0; r < uploads.size(); ++r) {
    state_.uploads[crew_ ? static_cast<size_t>(group_[r]) : r] += uploads[r];
  }
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
  return {.world_size = workers_,
          .coordinates = coordinates_,
          .steps_per_epoch = steps_per_epoch_,
          .replicas_identical = replicas_identical_,
          .weights_hash = replica_->Hash(),
          .init = state_.init,
          .rounds = 0,
          .uploads = {},
          .policy = runner_->Policy(),
          .samples = runner_->Samples(),
          .losses = state_.losses,
          .shares = shares_.samples.empty() ? nullptr : &shares_};
}

}  // namespace

namespace {

Status TrainInGroup(const TrainOptions& options, const RunInfo& info, Communicator* comm,
                    Crew* crew) {
  comm->SetFarewell("its part of the run is done");
  Trainer trainer(options, info, comm, crew);
  Status status = trainer.Train();
  // What all know of already needs no telling; any other trouble the others would only notice
  // as silence.
  if (!status.ok() && !trainer.agreement().on_error()) comm->Abort(status);
  if (crew && trainer.agreement().on_error()) (void)crew->End(/*well=*/false);
  return status;
}

}  // namespace

Status TrainAsWorker(const TrainOptions& options, const CommunicatorOptions& where,
                     const RunInfo& info) {
  KeepTorchQuiet();
  if (options.on_loss == "stop" || where.world_size == 1) {
    EQ_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm, Communicator::Connect(where));
    return TrainInGroup(options, info, comm.get(), nullptr);
  }
  if (options.least_workers > where.world_size) {
    return InvalidArgument(fmt::format("--least-workers is {}, and there are {} workers",
                                       options.least_workers, where.world_size));
  }
  EQ_ASSIGN_OR_RETURN(const std::unique_ptr<Crew> crew, Crew::Start({where, nullptr}));
  TrainOptions mine = options;
  if (crew->is_newcomer()) mine.inject.clear();  // what was to strike it has
  return TrainInGroup(mine, info, &crew->comm(), crew.get());
}

}  // namespace elastiquant
