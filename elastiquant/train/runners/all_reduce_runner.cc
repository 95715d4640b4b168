#include "elastiquant/train/runners/all_reduce_runner.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "elastiquant/base/random.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/remembering.h"
#include "elastiquant/train/own_state.h"

namespace elastiquant {
namespace {

// What buckets travel under, in a LayerReduction.
constexpr char kCompressed[] = "compressed";
constexpr char kExact[] = "exact";

constexpr char kRate[] = "learning-rate";  // section of a checkpoint: of what is remembered

constexpr int kEstimates = 10;  // of which a variance is taken

}  // namespace

Result<std::unique_ptr<Runner>> AllReduceRunner::Make(const TrainOptions& options,
                                                      const RunnerPlace& place,
                                                      GradientDump* dump) {
  std::unique_ptr<AllReduceRunner> runner(new AllReduceRunner(options, place, dump));
  EQ_RETURN_IF_ERROR(runner->MakeLayers(options, place));
  if (options.measure_variance > 0) {
    LoaderOptions other = place.loading;
    other.seed = Mix64(~other.seed);
    EQ_ASSIGN_OR_RETURN(runner->other_batches_, TrainLoader::Make(place.dataset, other));
  }
  return std::unique_ptr<Runner>(std::move(runner));
}

// What own codecs tell each other are scalars, and how many depends on the buckets.
Result<BucketPlan> AllReduceRunner::Plan(const TrainOptions& options,
                                         const RunnerPlace& place) {
  BucketPlanOptions plan_options{
      .bucket_elements = static_cast<size_t>(options.bucket_kib) * 1024 / sizeof(float),
      .exact = options.exact,
      .scalars = BackwardPass::kScalars};
  EQ_ASSIGN_OR_RETURN(BucketPlan plan, PlanBuckets(shapes_, plan_options));
  EQ_ASSIGN_OR_RETURN(own_,
                      OwnCodecs::Make(options, *comm_, weights_, plan, place.total_steps));
  if (!own_) return plan;
  plan_options.scalars += own_->scalars();
  return PlanBuckets(shapes_, plan_options);
}

Status AllReduceRunner::MakeLayers(const TrainOptions& options, const RunnerPlace& place) {
  shapes_ = ShapesOf(replica_->parameters());
  EQ_ASSIGN_OR_RETURN(BucketPlan planned, Plan(options, place));
  EQ_ASSIGN_OR_RETURN(pass_,
                      BackwardPass::Make(options, place, std::move(planned),
                                         [this](size_t bucket) { return OnReady(bucket); }));
  CodecsBySpec codecs;
  EQ_ASSIGN_OR_RETURN(codecs[kCompressed], MakeCodec(options.codec));
  EQ_ASSIGN_OR_RETURN(codecs[kExact], MakeCodec("fp32"));
  codecs_ = std::make_unique<RunCodecs>(std::move(codecs), comm_, options.adapt_every);
  units_ = std::make_unique<MemoryUnits>(shapes_.size());
  LayerBuckets buckets{plan(), shapes_, {}, {}};
  for (size_t b = 0; b < plan().buckets.size(); ++b) {
    buckets.gradients.push_back(gradients().bucket(b));
    buckets.specs.push_back(plan().buckets[b].exact ? kExact : kCompressed);
  }
  const ReducerOptions reducer_options{
      .seed = Mix64(options.seed),  // apart from the streams of weights and data
      .threads = options.codec_threads,
      .weights = weights_,
      .measure_every = static_cast<uint64_t>(options.measure_every)};
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(options.algorithm));
  const bool has_metric = MetricOf(options) != "plain";
  LayerReductionOptions layer_options{
      .reducer = reducer_options,
      .choose = [this](size_t b, auto codec) { return ChoiceOf(b, std::move(codec)); },
      .conversion = has_metric ? Conversion::kByReduction : Conversion::kNone,
      .has_uncompressed =
          has_metric || algorithm.has_exact_steps() || options.measure_variance > 0,
      .before_sent = [this](size_t b) { Capture(b); }};
  if (own_) own_->AddTo(&layer_options, [this](size_t b) { return gradients().bucket(b); });
  EQ_ASSIGN_OR_RETURN(layers_, LayerReduction::Make(comm_, std::move(buckets), codecs_->Now(),
                                                    std::move(layer_options)));
  if (own_) EQ_RETURN_IF_ERROR(own_->UseIn(layers_.get()));
  if (!has_metric) return {};
  exact_steps_ = options.exact_steps;
  // They stay where they are. Before the first step they are zero, and the metric is plain.
  return layers_->SetMetric(replica_->second_moments());
}

const Codec& AllReduceRunner::codec() const { return *codecs_->asked().at(kCompressed); }

Result<ExchangeChoice> AllReduceRunner::ChoiceOf(size_t bucket,
                                                 std::shared_ptr<const Codec> codec) const {
  if (!plan().buckets[bucket].exact) {
    return ExchangeOf(options_, std::move(codec), comm_->world_size());
  }
  return AsItAsks(std::move(codec));
}

Status AllReduceRunner::UseCodec(const std::string& spec) {
  EQ_RETURN_IF_ERROR(codecs_->UseFitted({{kCompressed, spec}}));
  return layers_->UseCodecs(codecs_->Now());
}

StateIdentity AllReduceRunner::Identity() const {
  StateIdentity identity{
      .rank = comm_->rank(), .world_size = comm_->world_size(), .layers = {}};
  for (const PlannedBucket& bucket : plan().buckets) {
    for (const BucketSlot& slot : bucket.slots) {
      const ParameterShape& shape = shapes_[slot.parameter];
      identity.layers.push_back(
          {shape.name, shape.elements, bucket.exact ? "fp32" : codec().spec()});
    }
  }
  return identity;
}

std::string AllReduceRunner::AdaptedCodec() const {
  const std::map<std::string, std::string> fitted = codecs_->Fitted();
  return fitted.empty() ? "" : fitted.at(kCompressed);
}

Status AllReduceRunner::BeginEpoch(int64_t epoch) {
  const bool changed = codecs_->SetEpoch(static_cast<int>(epoch - 1));
  return changed ? layers_->UseCodecs(codecs_->Now()) : Status::Ok();
}

Status AllReduceRunner::SaveMemory(Checkpoint* checkpoint) {
  Sections memory;
  layers_->SaveMemory(&memory);
  SaveSections(std::move(memory), "", checkpoint);
  SaveDoubles(kRate, units_->of_memory().first(1), checkpoint);
  if (own_) own_->Save(checkpoint);
  replica_->SaveOwn(checkpoint);
  return {};
}

Status AllReduceRunner::LoadMemory(const Checkpoint& checkpoint) {
  const Sections memory = SectionsBehind("", checkpoint);
  EQ_ASSIGN_OR_RETURN(double unit, ValueIn<double>(memory, kRate));
  // Earlier versions wrote 0 where there was no rate yet, or none in the memory.
  if (unit == 0) unit = 1;
  EQ_RETURN_IF_ERROR(units_->SetOfMemory(std::vector<double>(shapes_.size(), unit)));
  if (own_) EQ_RETURN_IF_ERROR(own_->Load(checkpoint, layers_.get()));
  EQ_RETURN_IF_ERROR(layers_->LoadMemory(memory));
  return replica_->LoadOwn(checkpoint);
}

// On the thread that runs backward. The reducer may overwrite the bucket once it is told.
Status AllReduceRunner::OnReady(size_t bucket) {
  const PlannedBucket& planned = plan().buckets[bucket];
  if (dumping_ && !measures_variance_) {
    dump_->Capture(planned, gradients().bucket(bucket));
  }
  for (const BucketSlot& slot : planned.slots) replica_->optimizer().Prepare(slot.parameter);
  return layers_->MarkReady(bucket);
}

void AllReduceRunner::Capture(size_t bucket) {
  if (measures_variance_) return;
  const bool exact = plan().buckets[bucket].exact;
  codecs_->Capture(exact ? kExact : kCompressed, step_ + 1, gradients().bucket(bucket));
  if (own_) own_->BeforeSent(bucket, gradients().bucket(bucket), layers_->Remembered(bucket));
}

// Tells the worker's own codecs of a step, and has them decide about the next one.
Status AllReduceRunner::EndOwn(const StepOutcome& outcome, double learning_rate,
                               StepRecord* record) {
  if (!own_) return {};
  EQ_ASSIGN_OR_RETURN(record->decisions,
                      own_->EndRound(own_scalars(),
                                     {.loss = pass_->loss(),
                                      .learning_rate = learning_rate,
                                      .is_void = outcome.skipped || uncompressed_},
                                     layers_.get()));
  return {};
}

// Leaves the means of what the workers have sent in the gradients.
Result<StepOutcome> AllReduceRunner::Reduce(int64_t step, double learning_rate,
                                            const Batch& batch) {
  uncompressed_ = replica_->optimizer().sends_exactly() || step < exact_steps_;
  if (HasLearningRate(codec())) {
    EQ_RETURN_IF_ERROR(units_->Set(std::vector<double>(shapes_.size(), learning_rate)));
  }
  return Exchange(static_cast<uint64_t>(step), batch);
}

// `step` names the noise of this exchange.
Result<StepOutcome> AllReduceRunner::Exchange(uint64_t step, const Batch& batch) {
  units_->BeforeStep(*layers_);
  EQ_RETURN_IF_ERROR(layers_->BeginStep(step, uncompressed_));
  units_->InStep(*layers_);
  if (own_) own_->BeginRound(own_scalars());
  EQ_RETURN_IF_ERROR(pass_->Run(batch));
  auto outcome = layers_->Finish();
  units_->AfterStep(*layers_);
  return outcome;
}

// At the weights as they are, over fresh batches and with fresh noise of the codec.
Result<GradientVariance> AllReduceRunner::VarianceOf(bool uncompressed) {
  size_t coordinates = 0;
  for (const ParameterShape& shape : shapes_) coordinates += shape.elements;
  GradientVarianceSums sums(coordinates);
  uncompressed_ = uncompressed;
  // These numbers are those of no training step, and of no step whose frames are measured
  // unless all are.
  const auto every = static_cast<uint64_t>(std::max<int64_t>(options_.measure_every, 1));
  const uint64_t first = (uint64_t{1} << 40) / every * every + 1;
  for (int i = 0; i < kEstimates; ++i) {
    EQ_ASSIGN_OR_RETURN(const Batch batch, other_batches_->Next());
    pass_->Begin(step_, /*inspect=*/false);
    EQ_ASSIGN_OR_RETURN(const StepOutcome outcome,
                        Exchange(first + every * estimates_++, batch));
    if (outcome.skipped) return NonFinite("an estimate of the gradient had NaN or infinity");
    size_t offset = 0;
    for (size_t b = 0; b < plan().buckets.size(); ++b) {
      for (const BucketSlot& slot : plan().buckets[b].slots) {
        const size_t elements = shapes_[slot.parameter].elements;
        sums.Add(offset, gradients().bucket(b).subspan(slot.offset, elements));
        offset += elements;
      }
    }
  }
  return sums.Of(kEstimates);
}

// Leaves nothing behind: neither in what codecs remember, nor in running statistics.
Status AllReduceRunner::MeasureVariance(StepRecord* record) {
  const std::vector<uint8_t> buffers = replica_->CopyBuffers();
  measures_variance_ = true;
  EQ_RETURN_IF_ERROR(units_->Set(std::vector<double>(shapes_.size(), 0.0)));
  const auto compressed = VarianceOf(/*uncompressed=*/false);
  const auto exact = compressed.ok() ? VarianceOf(/*uncompressed=*/true) : compressed;
  measures_variance_ = false;
  EQ_RETURN_IF_ERROR(units_->Set(std::vector<double>(shapes_.size(), 1.0)));
  replica_->RestoreBuffers(buffers);
  (void)layers_->TakeStats();
  if (exact.status().code() == StatusCode::kNonFinite) return {};
  EQ_RETURN_IF_ERROR(exact.status());
  record->variance = {{"estimates", kEstimates},
                      {"compressed", compressed->variance},
                      {"exact", exact->variance},
                      {"compressed_normalised", compressed->normalised},
                      {"exact_normalised", exact->normalised}};
  return {};
}

Result<StepResult> AllReduceRunner::Run(int64_t step, double learning_rate, bool inspect,
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
  pass_->Begin(step, inspect);
  replica_->optimizer().BeginStep(step, learning_rate);
  EQ_ASSIGN_OR_RETURN(StepOutcome outcome, Reduce(step, learning_rate, batch));
  comm_->SetActivity("between two steps");

  StepRecord record = pass_->Record(learning_rate, outcome.skipped);
  if (outcome.skipped) {
    replica_->RestoreBuffers(buffers);
    codecs_->Forget();
  } else {
    if (replica_->optimizer().sends_gradients()) gradients().ClipNorm(options_.clip_norm);
    replica_->optimizer().Step(learning_rate);
    EQ_ASSIGN_OR_RETURN(const bool adapted, codecs_->Adapt(step + 1));
    if (adapted) EQ_RETURN_IF_ERROR(layers_->UseCodecs(codecs_->Now()));
  }
  EQ_RETURN_IF_ERROR(EndOwn(outcome, learning_rate, &record));
  record.seconds.total = watch.Seconds();
  AddCommunication(layers_->TakeStats(), comm_->traffic() - before, &record);
  ++rounds_;
  if (options_.measure_variance > 0 && record.step % options_.measure_variance == 0) {
    EQ_RETURN_IF_ERROR(MeasureVariance(&record));
  }
  if (dumping_) EQ_RETURN_IF_ERROR(dump_->Write(record.step));
  return StepResult{record, std::move(outcome)};
}

}  // namespace elastiquant
