#include "elastiquant/train/trainer.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <fmt/format.h>
#include <signal.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/collective/gradient_reducer.h"
#include "elastiquant/train/dataset.h"
#include "elastiquant/train/gradient_dump.h"
#include "elastiquant/train/loader.h"
#include "elastiquant/train/progress.h"
#include "elastiquant/train/replica.h"
#include "elastiquant/train/run_record.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kEvaluationBatch = 128;
constexpr size_t kScalars = 2;                   // loss and accuracy travel with the gradients
constexpr char kGradientFolder[] = "gradients";  // in the run's

int ChooseThreads(const TrainOptions& options, int workers_here) {
  if (options.threads > 0) return options.threads;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, workers_here));
}

struct Evaluation {
  double accuracy = kNan;  // per cent
  double loss = kNan;
};

class Trainer {
 public:
  Trainer(const TrainOptions& options, const RunInfo& info, Communicator& comm)
      : options_(options), info_(info), comm_(comm) {}

  Status SetUp();
  Status Run();
  // The error that SetUp or Run ended with is known to every worker.
  bool agreed() const { return agreed_; }

 private:
  bool is_first() const { return comm_.rank() == 0; }
  int64_t epoch_of(int64_t step) const { return step / steps_per_epoch_ + 1; }

  Status Agree(const Status& mine);
  Status Known(Status status);

  Status OpenData();
  Status MakeReplica();
  Status MakeReducer();
  Status PrepareFolder();
  Status MakeDump();
  Status LoadCheckpoint();
  Status ShareStart();

  Status TrainStep();
  Status Backward(const Batch& batch, StepRecord* record);
  Status Skip(const StepOutcome& outcome);
  Status GiveUp(const StepOutcome& outcome);
  void StrikeFaults();
  bool NanIsDue() const;
  Status RecordStep(StepRecord record, const Traffic& before);
  Status EndEpoch();
  Result<Evaluation> Evaluate();
  Status CheckReplicas();
  Status WriteCheckpoint();
  Status WriteSummary();

  const TrainOptions options_;
  const RunInfo info_;
  Communicator& comm_;
  std::vector<Fault> faults_;

  std::shared_ptr<const Dataset> dataset_;
  std::unique_ptr<TrainLoader> loader_;
  std::unique_ptr<TestLoader> test_loader_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<FlatGradients> gradients_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<MetricsLog> log_;
  std::unique_ptr<GradientDump> dump_;  // if there is something to dump here
  RunRecord record_;
  Schedule schedule_;

  int64_t coordinates_ = 0;
  int64_t steps_per_epoch_ = 1;
  int64_t total_steps_ = 0;
  int64_t step_ = 0;  // done
  int64_t skipped_in_a_row_ = 0;
  bool dumping_ = false;  // the gradient of this step
  bool replicas_identical_ = true;
  Status backward_status_;
  bool agreed_ = false;
};

// Collective: an error on any worker becomes an error on all. The lowest worker's is the one
// that is told, unless others fail differently.
Status Trainer::Agree(const Status& mine) {
  EQ_ASSIGN_OR_RETURN(const std::vector<uint64_t> codes,
                      comm_.AllGather(static_cast<uint64_t>(mine.code())));
  const auto first = std::ranges::find_if(codes, [](uint64_t code) { return code != 0; });
  if (first == codes.end()) return Status::Ok();
  agreed_ = true;
  const bool first_is_mine = first - codes.begin() == comm_.rank();
  const auto code = static_cast<StatusCode>(*first);
  if (!mine.ok() && (first_is_mine || mine.code() != code)) return mine;
  return {code, ""};
}

// An error that every worker found alike: worker 0 tells it.
Status Trainer::Known(Status status) {
  agreed_ = true;
  return is_first() ? status : Status(status.code(), "");
}

Status Trainer::OpenData() {
  DatasetOptions data{.seed = options_.data_seed,
                      .image_size = options_.image_size,
                      .generated_train = options_.generated_train,
                      .generated_test = options_.generated_test};
  EQ_ASSIGN_OR_RETURN(dataset_, OpenDataset(options_.data, data));
  return Status::Ok();
}

LoaderOptions MakeLoaderOptions(const TrainOptions& options, const Communicator& comm) {
  return {.batch = options.batch,
          .rank = comm.rank(),
          .world_size = comm.world_size(),
          .seed = options.seed,
          .augment = options.augment,
          .threads = options.loader_threads};
}

Status Trainer::MakeReplica() {
  const DatasetInfo& data = dataset_->info();
  const ModelOptions model_options{.classes = data.classes,
                                   .channels = data.channels,
                                   .image_size = data.image_size,
                                   .seed = options_.seed};
  EQ_ASSIGN_OR_RETURN(std::shared_ptr<Model> model, MakeModel(options_.model, model_options));
  coordinates_ = CountParameters(*model);
  replica_ = std::make_unique<Replica>(std::move(model), options_);
  return Status::Ok();
}

Status Trainer::MakeReducer() {
  const BucketPlanOptions plan_options{
      .bucket_elements = static_cast<size_t>(options_.bucket_kib) * 1024 / sizeof(float),
      .exact = options_.exact,
      .scalars = kScalars};
  const auto shapes = ShapesOf(replica_->parameters());
  EQ_ASSIGN_OR_RETURN(BucketPlan plan, PlanBuckets(shapes, plan_options));
  gradients_ = std::make_unique<FlatGradients>(
      replica_->parameters(), std::move(plan), [this](size_t bucket) {
        if (dumping_)
          dump_->Capture(gradients_->plan().buckets[bucket], gradients_->bucket(bucket));
        const Status status = reducer_->MarkReady(bucket);
        if (!status.ok()) backward_status_ = status;
      });
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(options_.codec));
  EQ_ASSIGN_OR_RETURN(const auto exact, MakeCodec("fp32"));
  std::vector<GradientBucket> buckets;
  for (size_t b = 0; b < gradients_->plan().buckets.size(); ++b) {
    const PlannedBucket& planned = gradients_->plan().buckets[b];
    buckets.push_back({gradients_->bucket(b), planned.exact ? exact : codec, planned.name});
  }
  const ReducerOptions reducer_options{
      .seed = Mix64(options_.seed),  // apart from the streams of weights and data
      .threads = options_.codec_threads,
      .measure_every = static_cast<uint64_t>(options_.measure_every)};
  EQ_ASSIGN_OR_RETURN(reducer_,
                      GradientReducer::Create(&comm_, std::move(buckets), reducer_options));
  return Status::Ok();
}

Status Trainer::PrepareFolder() {
  std::error_code error;
  fs::create_directories(options_.out, error);
  if (error) return IoError("cannot make the folder " + options_.out + ": " + error.message());
  if (options_.resume) return Status::Ok();
  for (const CheckpointFile& file : ListCheckpoints(options_.out)) {
    if (!options_.overwrite) {
      return InvalidArgument(options_.out +
                             " holds checkpoints of a run; go on with it by "
                             "--resume, replace it by --overwrite, or give another --out");
    }
    fs::remove(file.path, error);
  }
  RemoveGradientDumps(fs::path(options_.out) / kGradientFolder);
  fs::remove(fs::path(options_.out) / "summary.json", error);
  return Status::Ok();
}

Status Trainer::MakeDump() {
  if (options_.dump_gradients.empty()) return Status::Ok();
  EQ_ASSIGN_OR_RETURN(auto steps, ParseDumpSteps(options_.dump_gradients, total_steps_));
  if (is_first()) {
    dump_ = std::make_unique<GradientDump>(fs::path(options_.out) / kGradientFolder,
                                           std::move(steps), replica_->parameters());
  }
  return Status::Ok();
}

Status Trainer::LoadCheckpoint() {
  std::vector<std::string> complaints;
  const auto loaded = LoadNewestCheckpoint(options_.out, &complaints);
  if (loaded.status().code() == StatusCode::kNotFound) {
    progress_->Note("no checkpoint in " + options_.out + " yet: starting from step 0");
    return Status::Ok();
  }
  if (!loaded.ok()) return loaded.status();
  for (const std::string& complaint : complaints) progress_->Note("warning: " + complaint);

  const Checkpoint& contents = loaded->contents;
  const auto section = contents.find("progress");
  if (section == contents.end()) return CorruptData("checkpoint: section progress is missing");
  const json progress = json::parse(section->second, nullptr, /*allow_exceptions=*/false);
  if (!progress.is_object()) return CorruptData("checkpoint: section progress is not JSON");
  const std::string differences = CompareFingerprints(
      progress.at("fingerprint"), Fingerprint(options_, comm_.world_size()));
  if (!differences.empty()) {
    return InvalidArgument("the run in " + options_.out + " was started with other options: " +
                           differences + ". Give them as they were, or another --out");
  }
  if (const int threads = progress.at("threads"); threads != at::get_num_threads()) {
    progress_->Note(
        fmt::format("warning: the run had --threads {} and goes on with {}: sums may "
                    "differ in their last bits from an uninterrupted run",
                    threads, at::get_num_threads()));
  }
  EQ_RETURN_IF_ERROR(replica_->Load(contents));
  record_.LoadState(progress.at("record"));
  skipped_in_a_row_ = progress.at("skipped_in_a_row");
  step_ = progress.at("step");
  progress_->Note(fmt::format("resuming {} after step {}{}", options_.out, step_,
                              complaints.empty() ? "" : ", from the checkpoint before"));
  return Status::Ok();
}

// Collective: weights, momentum and place in the run become worker 0's.
Status Trainer::ShareStart() {
  EQ_RETURN_IF_ERROR(replica_->TakeOver(comm_));
  EQ_ASSIGN_OR_RETURN(const auto steps, comm_.AllGather(static_cast<uint64_t>(step_)));
  EQ_ASSIGN_OR_RETURN(const auto skipped,
                      comm_.AllGather(static_cast<uint64_t>(skipped_in_a_row_)));
  step_ = static_cast<int64_t>(steps[0]);
  skipped_in_a_row_ = static_cast<int64_t>(skipped[0]);
  return Status::Ok();
}

Status Trainer::SetUp() {
  at::set_num_threads(ChooseThreads(options_, info_.workers_here));
  const auto local = [&]() -> Status {
    EQ_ASSIGN_OR_RETURN(faults_, ParseFaults(options_.inject));
    EQ_RETURN_IF_ERROR(OpenData());
    EQ_RETURN_IF_ERROR(MakeReplica());
    const LoaderOptions loading = MakeLoaderOptions(options_, comm_);
    EQ_ASSIGN_OR_RETURN(loader_, TrainLoader::Make(dataset_, loading));
    steps_per_epoch_ = loader_->steps_per_epoch();
    total_steps_ = options_.steps > 0 ? options_.steps : options_.epochs * steps_per_epoch_;
    schedule_ = MakeSchedule(options_, total_steps_);
    LoaderOptions testing = loading;
    testing.batch = std::max(options_.batch, kEvaluationBatch);
    EQ_ASSIGN_OR_RETURN(test_loader_, TestLoader::Make(dataset_, testing));
    progress_ = std::make_unique<Progress>(
        ProgressOptions{.total_steps = total_steps_,
                        .coordinates = coordinates_,
                        .world_size = comm_.world_size(),
                        .live = is_first() && !options_.quiet && isatty(STDERR_FILENO) == 1});
    EQ_RETURN_IF_ERROR(MakeDump());
    if (!is_first()) return Status::Ok();
    EQ_RETURN_IF_ERROR(PrepareFolder());
    if (dump_) EQ_RETURN_IF_ERROR(dump_->WriteLayers());
    if (options_.resume) EQ_RETURN_IF_ERROR(LoadCheckpoint());
    EQ_ASSIGN_OR_RETURN(MetricsLog log,
                        MetricsLog::Open(fs::path(options_.out) / "metrics.jsonl", step_));
    log_ = std::make_unique<MetricsLog>(std::move(log));
    return Status::Ok();
  };
  EQ_RETURN_IF_ERROR(Agree(local()));
  EQ_RETURN_IF_ERROR(Agree(MakeReducer()));
  EQ_RETURN_IF_ERROR(ShareStart());
  const LoaderPosition start{step_ / steps_per_epoch_, step_ % steps_per_epoch_};
  EQ_ASSIGN_OR_RETURN(loader_,
                      TrainLoader::Make(dataset_, MakeLoaderOptions(options_, comm_), start));
  return Status::Ok();
}

Status Trainer::Run() {
  while (step_ < total_steps_) {
    EQ_RETURN_IF_ERROR(TrainStep());
    if (options_.check_replicas == "every") EQ_RETURN_IF_ERROR(CheckReplicas());
    if (step_ % steps_per_epoch_ == 0 || step_ == total_steps_) EQ_RETURN_IF_ERROR(EndEpoch());
    const bool due = options_.checkpoint_every > 0 &&
                     (step_ % options_.checkpoint_every == 0 || step_ == total_steps_);
    if (due && is_first()) EQ_RETURN_IF_ERROR(WriteCheckpoint());
  }
  EQ_RETURN_IF_ERROR(CheckReplicas());
  if (is_first()) EQ_RETURN_IF_ERROR(WriteSummary());
  return comm_.Barrier();  // nobody leaves while others still work
}

void Trainer::StrikeFaults() {
  for (const Fault& fault : faults_) {
    if (!fault.Strikes(step_, comm_.rank())) continue;
    if (fault.kind == FaultKind::kExit) _exit(9);
    if (fault.kind == FaultKind::kKill) raise(SIGKILL);
    if (fault.kind == FaultKind::kStop) raise(SIGSTOP);
    if (fault.kind == FaultKind::kDrift) replica_->Drift();
  }
}

bool Trainer::NanIsDue() const {
  return std::ranges::any_of(faults_, [&](const Fault& fault) {
    return fault.kind == FaultKind::kNan && fault.Strikes(step_, comm_.rank());
  });
}

Status Trainer::Backward(const Batch& batch, StepRecord* record) {
  at::Tensor logits = replica_->model().Forward(batch.images);
  at::Tensor loss = at::cross_entropy_loss(logits, batch.labels);
  if (NanIsDue()) loss = loss * kNan;
  const auto correct = logits.detach().argmax(1).eq(batch.labels).sum().item<int64_t>();
  const std::span<float> scalars = gradients_->scalars();
  scalars[0] = loss.item<float>();
  scalars[1] = static_cast<float>(correct) / static_cast<float>(batch.labels.numel());
  loss.backward();
  gradients_->FinishBackward();
  record->images = batch.labels.numel() * comm_.world_size();
  return backward_status_;
}

Status Trainer::TrainStep() {
  StrikeFaults();
  const Stopwatch watch;
  const Traffic before = comm_.traffic();
  StepRecord record;
  record.step = step_ + 1;
  record.epoch = epoch_of(step_);
  record.learning_rate = LearningRate(schedule_, step_);
  EQ_ASSIGN_OR_RETURN(const Batch batch, loader_->Next());
  // A forward pass that meets NaN also spoils the running statistics: a skipped step undoes it.
  const std::vector<uint8_t> buffers = replica_->CopyBuffers();
  dumping_ = dump_ && dump_->Due(step_ + 1);
  gradients_->Begin();
  gradients_->set_inspect(skipped_in_a_row_ + 1 >= options_.max_skipped);
  EQ_RETURN_IF_ERROR(reducer_->BeginStep(static_cast<uint64_t>(step_)));
  EQ_RETURN_IF_ERROR(Backward(batch, &record));
  EQ_ASSIGN_OR_RETURN(const StepOutcome outcome, reducer_->Finish());
  ++step_;
  record.skipped = outcome.skipped;
  if (outcome.skipped) {
    record.loss = record.accuracy = kNan;
    replica_->RestoreBuffers(buffers);
  } else {
    record.loss = gradients_->scalars()[0];
    record.accuracy = 100.0 * gradients_->scalars()[1];
    skipped_in_a_row_ = 0;
    replica_->Step(record.learning_rate);
  }
  record.seconds.total = watch.Seconds();
  if (dumping_) EQ_RETURN_IF_ERROR(dump_->Write(step_));
  EQ_RETURN_IF_ERROR(RecordStep(record, before));
  return outcome.skipped ? Skip(outcome) : Status::Ok();
}

Status Trainer::RecordStep(StepRecord record, const Traffic& before) {
  const ReducerStats stats = reducer_->TakeStats();
  const Traffic after = comm_.traffic();
  record.seconds.encode = stats.encode_seconds;
  record.seconds.decode = stats.decode_seconds;
  record.seconds.wait = stats.wait_seconds;
  record.seconds.compute = std::max(0.0, record.seconds.total - stats.wait_seconds);
  record.seconds.transmit = after.transmit_seconds - before.transmit_seconds;
  record.bytes_up = after.bytes_up - before.bytes_up;
  record.bytes_down = after.bytes_down - before.bytes_down;
  record.squared_error = stats.squared_error;
  record.squared_norm = stats.squared_norm;
  record_.AddStep(record);
  if (!is_first()) return Status::Ok();
  progress_->Step(record);
  return log_->Write(record);
}

Status Trainer::Skip(const StepOutcome& outcome) {
  ++skipped_in_a_row_;
  if (is_first())
    progress_->Note(fmt::format("step {} was skipped: {}", step_, outcome.reason));
  return skipped_in_a_row_ < options_.max_skipped ? Status::Ok() : GiveUp(outcome);
}

Status Trainer::GiveUp(const StepOutcome& outcome) {
  EQ_ASSIGN_OR_RETURN(
      const std::vector<uint64_t> found,
      comm_.AllGather(static_cast<uint64_t>(gradients_->non_finite_parameter() + 1)));
  std::string where = outcome.reason;
  for (size_t rank = found.size(); rank-- > 0;) {
    if (found[rank] == 0) continue;
    where = "NaN or infinity in the gradient of layer " +
            replica_->parameters()[found[rank] - 1].name + " on worker " + std::to_string(rank);
  }
  return Known(NonFinite(
      fmt::format("gave up at step {} after {} skipped steps in a row: {}. A lower --lr "
                  "or a --warmup may help; --max-skipped sets how many are allowed",
                  step_, skipped_in_a_row_, where)));
}

Status Trainer::EndEpoch() {
  EQ_RETURN_IF_ERROR(CheckReplicas());
  const int64_t epoch = epoch_of(step_ - 1);
  const bool due =
      step_ == total_steps_ || (options_.eval_every > 0 && epoch % options_.eval_every == 0);
  Evaluation evaluation;
  if (due) {
    const Stopwatch watch;
    EQ_ASSIGN_OR_RETURN(evaluation, Evaluate());
    record_.AddOverhead(watch.Seconds(), 0);
  }
  if (is_first()) progress_->Epoch(epoch, record_.epoch(), evaluation.accuracy);
  record_.EndEpoch(epoch, evaluation.accuracy, evaluation.loss);
  return Status::Ok();
}

// Each worker takes its share of the test set; the sums are taken in the workers' order.
Result<Evaluation> Trainer::Evaluate() {
  EQ_RETURN_IF_ERROR(replica_->TakeOverBuffers(comm_));
  int64_t samples = 0, correct = 0;
  double loss = 0;
  const auto local = [&]() -> Status {
    const at::NoGradGuard no_grad;
    test_loader_->Rewind();
    while (true) {
      EQ_ASSIGN_OR_RETURN(const std::optional<Batch> batch, test_loader_->Next());
      if (!batch) return Status::Ok();
      const at::Tensor logits = replica_->model().Forward(batch->images);
      samples += batch->labels.numel();
      correct += logits.argmax(1).eq(batch->labels).sum().item<int64_t>();
      loss += at::cross_entropy_loss(logits, batch->labels).item<double>() *
              static_cast<double>(batch->labels.numel());
    }
  };
  replica_->model().eval();
  const Status status = local();
  replica_->model().train();
  EQ_RETURN_IF_ERROR(Agree(status));
  EQ_ASSIGN_OR_RETURN(const auto all_samples, comm_.AllGather(static_cast<uint64_t>(samples)));
  EQ_ASSIGN_OR_RETURN(const auto all_correct, comm_.AllGather(static_cast<uint64_t>(correct)));
  EQ_ASSIGN_OR_RETURN(const auto all_losses, comm_.AllGather(std::bit_cast<uint64_t>(loss)));
  double n = 0, hits = 0, sum = 0;
  for (size_t rank = 0; rank < all_samples.size(); ++rank) {
    n += static_cast<double>(all_samples[rank]);
    hits += static_cast<double>(all_correct[rank]);
    sum += std::bit_cast<double>(all_losses[rank]);
  }
  return Evaluation{.accuracy = 100.0 * hits / n, .loss = sum / n};
}

Status Trainer::CheckReplicas() {
  EQ_ASSIGN_OR_RETURN(const std::vector<uint64_t> hashes, comm_.AllGather(replica_->Hash()));
  std::map<uint64_t, size_t> votes;
  for (uint64_t hash : hashes) ++votes[hash];
  if (votes.size() == 1) return Status::Ok();
  // Those that differ from what most have; of two halves, from worker 0's.
  uint64_t usual = hashes[0];
  for (const auto& [hash, count] : votes) {
    if (count > votes[usual]) usual = hash;
  }
  std::string odd;
  for (size_t rank = 0; rank < hashes.size(); ++rank) {
    if (hashes[rank] != usual) odd += (odd.empty() ? "" : ", ") + std::to_string(rank);
  }
  replicas_identical_ = false;
  if (is_first()) EQ_RETURN_IF_ERROR(WriteSummary());
  return Known(Internal("after step " + std::to_string(step_) + " the weights of worker(s) " +
                        odd + " differ from the others': replicas must be identical"));
}

Status Trainer::WriteCheckpoint() {
  const Stopwatch watch;
  Checkpoint checkpoint;
  replica_->Save(&checkpoint);
  const std::string progress = json({{"step", step_},
                                     {"skipped_in_a_row", skipped_in_a_row_},
                                     {"threads", at::get_num_threads()},
                                     {"fingerprint", Fingerprint(options_, comm_.world_size())},
                                     {"record", record_.SaveState()}})
                                   .dump();
  checkpoint["progress"].assign(progress.begin(), progress.end());
  EQ_RETURN_IF_ERROR(SaveCheckpoint(options_.out, step_, checkpoint));
  record_.AddOverhead(0, watch.Seconds());
  return Status::Ok();
}

Status Trainer::WriteSummary() {
  json summary = record_.Summary(coordinates_, comm_.world_size());
  summary["model"] = options_.model;
  summary["data"] = options_.data;
  summary["codec"] = options_.codec;
  summary["codec_spec"] = MakeCodec(options_.codec).value()->spec();
  summary["world_size"] = comm_.world_size();
  summary["batch"] = options_.batch;
  summary["seed"] = options_.seed;
  summary["link"] = options_.link.empty() ? json(nullptr) : json(options_.link);
  summary["coordinates"] = coordinates_;
  summary["steps_per_epoch"] = steps_per_epoch_;
  summary["replicas_identical"] = replicas_identical_;
  summary["weights_hash"] = fmt::format("{:016x}", replica_->Hash());
  summary["options"] = Fingerprint(options_, comm_.world_size());
  summary["command"] = info_.command_line;
  summary["versions"] = {{"elastiquant", info_.version}, {"torch", TORCH_VERSION}};
  summary["machine"] = DescribeMachine();
  summary["machine"]["threads"] = at::get_num_threads();
  const std::string text = summary.dump(2) + "\n";
  const fs::path file = fs::path(options_.out) / "summary.json";
  EQ_RETURN_IF_ERROR(WriteFileAtomically(
      file, std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size())));
  const json& accuracy = summary["test_accuracy"];
  fmt::print(
      "{}\n{}: test accuracy {}, {:.2f} bits per coordinate, {:.4f} s per step\n",
      file.string(), summary["codec"].get<std::string>(),
      accuracy.is_null() ? "not measured" : fmt::format("{:.2f} %", accuracy.get<double>()),
      summary["bits_per_coordinate"].get<double>(),
      summary["seconds_per_step"].is_null() ? 0.0 : summary["seconds_per_step"].get<double>());
  return Status::Ok();
}

}  // namespace

Status TrainAsWorker(const TrainOptions& options, const CommunicatorOptions& where,
                     const RunInfo& info) try {
  EQ_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm, Communicator::Connect(where));
  Trainer trainer(options, info, *comm);
  Status status = trainer.SetUp();
  if (status.ok()) status = trainer.Run();
  // What all know of already needs no telling; any other trouble the others would only notice
  // as silence.
  if (!status.ok() && !trainer.agreed()) comm->Abort(status);
  return status;
} catch (const std::exception& error) {  // libtorch throws
  return Internal(error.what());
}

}  // namespace elastiquant
