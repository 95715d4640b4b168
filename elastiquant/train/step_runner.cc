#include "elastiquant/train/step_runner.h"

#include <c10/util/Exception.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/random.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/remembering.h"
#include "elastiquant/train/prediction.h"

namespace elastiquant {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kScalars = 2;  // loss and accuracy travel with the gradients
// What buckets travel under, in a LayerReduction.
constexpr char kCompressed[] = "compressed";
constexpr char kExact[] = "exact";
constexpr char kRate[] = "learning-rate";  // of what is remembered

}  // namespace

Result<std::unique_ptr<StepRunner>> StepRunner::Make(const TrainOptions& options,
                                                     Communicator* comm, Replica* replica,
                                                     std::unique_ptr<GradientDump> dump,
                                                     std::vector<double> weights) {
  std::unique_ptr<StepRunner> runner(new StepRunner(options, comm, replica, std::move(dump)));
  EQ_ASSIGN_OR_RETURN(runner->faults_, ParseFaults(options.inject));
  EQ_RETURN_IF_ERROR(runner->MakeLayers(options, std::move(weights)));
  return runner;
}

Status StepRunner::MakeLayers(const TrainOptions& options, std::vector<double> weights) {
  const BucketPlanOptions plan_options{
      .bucket_elements = static_cast<size_t>(options.bucket_kib) * 1024 / sizeof(float),
      .exact = options.exact,
      .scalars = kScalars};
  shapes_ = ShapesOf(replica_->parameters());
  EQ_ASSIGN_OR_RETURN(BucketPlan plan, PlanBuckets(shapes_, plan_options));
  gradients_ = std::make_unique<FlatGradients>(replica_->parameters(), std::move(plan),
                                               [this](size_t bucket) { OnReady(bucket); });
  CodecsBySpec codecs;
  EQ_ASSIGN_OR_RETURN(codecs[kCompressed], MakeCodec(options.codec));
  EQ_ASSIGN_OR_RETURN(codecs[kExact], MakeCodec("fp32"));
  codecs_ = std::make_unique<RunCodecs>(std::move(codecs), comm_, options.adapt_every);
  units_ = std::make_unique<MemoryUnits>(shapes_.size());
  LayerBuckets buckets{gradients_->plan(), shapes_, {}, {}};
  for (size_t b = 0; b < gradients_->plan().buckets.size(); ++b) {
    buckets.gradients.push_back(gradients_->bucket(b));
    buckets.specs.push_back(gradients_->plan().buckets[b].exact ? kExact : kCompressed);
  }
  const ReducerOptions reducer_options{
      .seed = Mix64(options.seed),  // apart from the streams of weights and data
      .threads = options.codec_threads,
      .weights = std::move(weights),
      .measure_every = static_cast<uint64_t>(options.measure_every)};
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(options.algorithm));
  const bool has_metric = MetricOf(options) != "plain";
  EQ_ASSIGN_OR_RETURN(
      layers_,
      LayerReduction::Make(
          comm_, std::move(buckets), codecs_->Now(),
          {.reducer = reducer_options,
           .choose = [this](size_t b, auto codec) { return ChoiceOf(b, std::move(codec)); },
           .conversion = has_metric ? Conversion::kByReduction : Conversion::kNone,
           .has_uncompressed = has_metric || algorithm.has_exact_steps(),
           .before_sent = [this](size_t b) { Capture(b); }}));
  if (!has_metric) return {};
  exact_steps_ = options.exact_steps;
  // They stay where they are. Before the first step they are zero, and the metric is plain.
  return layers_->SetMetric(replica_->second_moments());
}

const Codec& StepRunner::codec() const { return *codecs_->asked().at(kCompressed); }

Result<ExchangeChoice> StepRunner::ChoiceOf(size_t bucket,
                                            std::shared_ptr<const Codec> codec) const {
  if (!gradients_->plan().buckets[bucket].exact) {
    return ExchangeOf(options_, std::move(codec), comm_->world_size());
  }
  ExchangeChoice as_it_asks;
  as_it_asks.codec = std::move(codec);
  return as_it_asks;
}

Status StepRunner::UseCodec(const std::string& spec) {
  EQ_RETURN_IF_ERROR(codecs_->UseFitted({{kCompressed, spec}}));
  return layers_->UseCodecs(codecs_->Now());
}

StateIdentity StepRunner::Identity() const {
  StateIdentity identity{
      .rank = comm_->rank(), .world_size = comm_->world_size(), .layers = {}};
  for (const PlannedBucket& bucket : gradients_->plan().buckets) {
    for (const BucketSlot& slot : bucket.slots) {
      const ParameterShape& shape = shapes_[slot.parameter];
      identity.layers.push_back(
          {shape.name, shape.elements, bucket.exact ? "fp32" : codec().spec()});
    }
  }
  return identity;
}

std::string StepRunner::AdaptedCodec() const {
  const std::map<std::string, std::string> fitted = codecs_->Fitted();
  return fitted.empty() ? "" : fitted.at(kCompressed);
}

Status StepRunner::BeginEpoch(int64_t epoch) {
  const bool changed = codecs_->SetEpoch(static_cast<int>(epoch - 1));
  return changed ? layers_->UseCodecs(codecs_->Now()) : Status::Ok();
}

void StepRunner::SaveMemory(Checkpoint* checkpoint) const {
  Sections memory;
  layers_->SaveMemory(&memory);
  for (auto& [name, bytes] : memory) {
    const auto values = static_cast<int64_t>(bytes.size() / sizeof(float));
    checkpoint->tensors[name] = {.dtype = "F32", .shape = {values}, .bytes = std::move(bytes)};
  }
  checkpoint->tensors[kRate] = {
      .dtype = "F64", .shape = {}, .bytes = BytesOf(units_->of_memory().first(1))};
  replica_->SaveOwn(checkpoint);
}

Status StepRunner::LoadMemory(const Checkpoint& checkpoint) {
  Sections memory;
  for (const auto& [name, tensor] : checkpoint.tensors) memory[name] = tensor.bytes;
  const std::vector<uint8_t>& rate = memory[kRate];
  double unit = 0;
  if (rate.size() != sizeof(unit)) {
    return CorruptData(std::string("section ") + kRate + " is missing or has a wrong size");
  }
  std::memcpy(&unit, rate.data(), sizeof(unit));
  // Earlier versions wrote 0 where there was no rate yet, or none in the memory.
  if (unit == 0) unit = 1;
  EQ_RETURN_IF_ERROR(units_->SetOfMemory(std::vector<double>(shapes_.size(), unit)));
  EQ_RETURN_IF_ERROR(layers_->LoadMemory(memory));
  return replica_->LoadOwn(checkpoint);
}

// On the thread that runs backward. The reducer may overwrite the bucket once it is told.
void StepRunner::OnReady(size_t bucket) {
  const PlannedBucket& planned = gradients_->plan().buckets[bucket];
  if (dumping_) dump_->Capture(planned, gradients_->bucket(bucket));
  for (const BucketSlot& slot : planned.slots) replica_->optimizer().Prepare(slot.parameter);
  const Status status = layers_->MarkReady(bucket);
  if (!status.ok()) backward_status_ = status;
  Strike(FaultMoment::kBackward, step_);
}

void StepRunner::Capture(size_t bucket) {
  const bool exact = gradients_->plan().buckets[bucket].exact;
  codecs_->Capture(exact ? kExact : kCompressed, step_ + 1, gradients_->bucket(bucket));
}

void StepRunner::Strike(FaultMoment moment, int64_t step) {
  for (const Fault& fault : faults_) {
    if (fault.moment != moment || !fault.Strikes(step, comm_->rank())) continue;
    TORCH_CHECK(fault.kind != FaultKind::kThrow, "thrown on purpose");
    if (fault.kind == FaultKind::kQuit) _exit(0);
    if (fault.kind == FaultKind::kExit) _exit(9);
    if (fault.kind == FaultKind::kKill) raise(SIGKILL);
    if (fault.kind == FaultKind::kStop) raise(SIGSTOP);
    while (fault.kind == FaultKind::kHang) pause();
    if (fault.kind == FaultKind::kDrift) replica_->Drift();
  }
}

bool StepRunner::NanIsDue(int64_t step) const {
  return std::ranges::any_of(faults_, [&](const Fault& fault) {
    return fault.kind == FaultKind::kNan && fault.Strikes(step, comm_->rank());
  });
}

Status StepRunner::Backward(int64_t step, const Batch& batch) {
  Prediction prediction = Predict(replica_->model(), batch, options_.precision == "bf16");
  if (NanIsDue(step)) prediction.loss = prediction.loss * kNan;
  const std::span<float> scalars = gradients_->scalars();
  scalars[0] = prediction.loss.item<float>();
  scalars[1] = static_cast<float>(prediction.correct) / static_cast<float>(prediction.targets);
  prediction.loss.backward();
  gradients_->FinishBackward();
  return backward_status_;
}

// Leaves the means of what the workers have sent in the gradients.
Result<StepOutcome> StepRunner::Reduce(int64_t step, double learning_rate, const Batch& batch) {
  const bool uncompressed = replica_->optimizer().sends_exactly() || step < exact_steps_;
  if (HasLearningRate(codec())) {
    EQ_RETURN_IF_ERROR(units_->Set(std::vector<double>(shapes_.size(), learning_rate)));
  }
  units_->BeforeStep(*layers_);
  EQ_RETURN_IF_ERROR(layers_->BeginStep(static_cast<uint64_t>(step), uncompressed));
  units_->InStep(*layers_);
  comm_->SetActivity("in forward or backward");
  EQ_RETURN_IF_ERROR(Backward(step, batch));
  auto outcome = layers_->Finish();
  units_->AfterStep(*layers_);
  return outcome;
}

Result<StepResult> StepRunner::Run(int64_t step, double learning_rate, bool inspect,
                                   TrainLoader& loader) {
  step_ = step;
  Strike(FaultMoment::kStep, step);
  const Stopwatch watch;
  const Traffic before = comm_->traffic();
  comm_->SetActivity("loading data");
  EQ_ASSIGN_OR_RETURN(const Batch batch, loader.Next());
  // A forward pass that meets NaN also spoils the running statistics: a skipped step undoes it.
  const std::vector<uint8_t> buffers = replica_->CopyBuffers();
  dumping_ = dump_ && dump_->Due(step + 1);
  gradients_->Begin();
  gradients_->set_inspect(inspect);
  replica_->optimizer().BeginStep(step, learning_rate);
  EQ_ASSIGN_OR_RETURN(StepOutcome outcome, Reduce(step, learning_rate, batch));
  comm_->SetActivity("between two steps");

  StepRecord record{.step = step + 1,
                    .loss = gradients_->scalars()[0],
                    .accuracy = 100.0 * gradients_->scalars()[1],
                    .learning_rate = learning_rate,
                    .skipped = outcome.skipped,
                    .seconds = {},
                    .images = batch.labels.numel() * comm_->world_size()};
  if (outcome.skipped) {
    record.loss = record.accuracy = kNan;
    replica_->RestoreBuffers(buffers);
    codecs_->Forget();
  } else {
    if (replica_->optimizer().sends_gradients()) gradients_->ClipNorm(options_.clip_norm);
    replica_->optimizer().Step(learning_rate);
    EQ_ASSIGN_OR_RETURN(const bool adapted, codecs_->Adapt(step + 1));
    if (adapted) EQ_RETURN_IF_ERROR(layers_->UseCodecs(codecs_->Now()));
  }
  record.seconds.total = watch.Seconds();
  AddCommunication(before, &record);
  if (dumping_) EQ_RETURN_IF_ERROR(dump_->Write(record.step));
  return StepResult{record, std::move(outcome)};
}

void StepRunner::AddCommunication(const Traffic& before, StepRecord* record) {
  const ReducerStats stats = layers_->TakeStats();
  const Traffic step = comm_->traffic() - before;
  StepSeconds& seconds = record->seconds;
  seconds.encode = stats.encode_seconds;
  seconds.decode = stats.decode_seconds;
  seconds.wait = stats.wait_seconds;
  seconds.compute = std::max(0.0, seconds.total - stats.wait_seconds);
  seconds.transmit = step.transmit_seconds;
  record->bytes_up = step.bytes_up;
  record->bytes_down = step.bytes_down;
  record->squared_error = stats.squared_error;
  record->squared_norm = stats.squared_norm;
}

Result<std::string> StepRunner::NonFiniteLayer(const std::string& otherwise) {
  EQ_ASSIGN_OR_RETURN(
      const std::vector<uint64_t> found,
      comm_->AllGather(static_cast<uint64_t>(gradients_->non_finite_parameter() + 1)));
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank] == 0) continue;
    return "NaN or infinity in the gradient of layer " +
           replica_->parameters()[found[rank] - 1].name + " on worker " + std::to_string(rank);
  }
  return otherwise;
}

}  // namespace elastiquant
