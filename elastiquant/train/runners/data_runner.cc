#include "elastiquant/train/runners/data_runner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/one_hot.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/random.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/train/codecs/worker_codecs.h"
#include "elastiquant/train/jpeg_samples.h"
#include "elastiquant/train/own_state.h"
#include "elastiquant/train/runners/message_round.h"

namespace elastiquant {
namespace {

// Refinements travel on channels of their own.
constexpr uint32_t kRefinementChannel = 1;
constexpr uint32_t kSampleTag = 1, kAnswerTag = 2, kModelTag = 3;

constexpr uint64_t kChanceStream = 3;  // which samples are sent

constexpr char kImportance[] = "importance";  // a section of a worker's checkpoint

// What worker 0 tells those that do not compute.
struct StepAnswer {
  float loss = 0;
  float accuracy = 0;
  uint32_t images = 0;
  uint32_t skipped = 0;
};

}  // namespace

DataRunner::DataRunner(const TrainOptions& options, const RunnerPlace& place,
                       const Algorithm& algorithm)
    : options_(options),
      algorithm_(algorithm),
      comm_(place.comm),
      replica_(place.replica),
      total_steps_(place.total_steps),
      dataset_(place.dataset),
      shares_(SharesOf(place.weights)),  // each worker has some data (NeedsShares)
      importance_({algorithm.skipped, algorithm.unbiased != 0}) {}

Result<std::unique_ptr<Runner>> DataRunner::Make(const TrainOptions& options,
                                                 const RunnerPlace& place) {
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(options.algorithm));
  if (!place.dataset->has_pixels()) {
    return InvalidArgument("--algorithm " + options.algorithm + " sends images that are " +
                           "stored as bytes of one size, and --data " + options.data +
                           " has others");
  }
  std::unique_ptr<DataRunner> runner(new DataRunner(options, place, algorithm));
  EQ_RETURN_IF_ERROR(runner->MakePass(place));
  EQ_RETURN_IF_ERROR(runner->MakeExchange(place));
  if (algorithm.refine != 0) EQ_RETURN_IF_ERROR(runner->MakeRefinement());
  runner->counted_ = place.comm->traffic();
  return std::unique_ptr<Runner>(std::move(runner));
}

Status DataRunner::MakePass(const RunnerPlace& place) {
  shapes_ = ShapesOf(replica_->parameters());
  EQ_ASSIGN_OR_RETURN(BucketPlan plan, PlanOneBucket(shapes_));
  certificate_ = std::make_unique<Certificate>(plan, shapes_);
  EQ_ASSIGN_OR_RETURN(pass_, BackwardPass::Make(options_, place, std::move(plan), nullptr));
  return {};
}

Status DataRunner::MakeExchange(const RunnerPlace& place) {
  const DatasetInfo& info = place.dataset->info();
  const ImageShape shape{.side = static_cast<size_t>(info.image_size),
                         .channels = static_cast<size_t>(info.channels)};
  EQ_ASSIGN_OR_RETURN(std::unique_ptr<SampleCodec> codec,
                      MakeSampleCodec(options_.samples, shape, options_.seed));
  EQ_ASSIGN_OR_RETURN(SampleExchange exchange,
                      SampleExchange::Make({.rank = comm_->rank(),
                                            .world_size = comm_->world_size(),
                                            .codec = std::move(codec),
                                            .samples = info.train_size,
                                            .classes = info.classes,
                                            .batch = options_.batch,
                                            .cached = algorithm_.cache != 0}));
  exchange_.emplace(std::move(exchange));
  return {};
}

Status DataRunner::MakeRefinement() {
  FragmentOptions fragments = FragmentOptionsOf(options_, shares_);
  fragments.fragments.assign(shapes_.size(), 0);
  fragments.reducer.channel = kRefinementChannel;
  EQ_ASSIGN_OR_RETURN(refinement_,
                      FragmentReduction::Make(comm_, shapes_, std::move(fragments)));
  return {};
}

// The norm of the gradient of the loss with respect to the logits, |softmax - one hot|, which
// bounds the norm of a sample's gradient up to a factor (Katharopoulos and Fleuret, "Not all
// samples are created equal", ICML 2018). Running statistics must not learn of it.
std::vector<double> DataRunner::Scores(const Batch& batch) {
  const at::NoGradGuard no_grad;
  const std::vector<uint8_t> buffers = replica_->CopyBuffers();
  const at::Tensor logits = replica_->model().Forward(batch.inputs);
  replica_->RestoreBuffers(buffers);
  const at::Tensor truth = at::one_hot(batch.labels, logits.size(1));
  const at::Tensor norms =
      (logits.softmax(1) - truth).square().sum(1).sqrt().to(at::kDouble).contiguous();
  return {norms.data_ptr<double>(), norms.data_ptr<double>() + norms.numel()};
}

// The samples of the batch that are to be sent.
DataRunner::Chosen DataRunner::Choose(int64_t step, const Batch& batch) {
  std::vector<double> chances(batch.samples.size(), 1);
  if (algorithm_.skipped > 0) chances = importance_.Chances(Scores(batch));
  const LaneKeys keys =
      MakeLaneKeys(DeriveKey(options_.seed, static_cast<uint64_t>(step),
                             static_cast<uint64_t>(comm_->rank()), kChanceStream));
  Chosen chosen;
  for (size_t i = 0; i < chances.size(); ++i) {
    if (chances[i] == 0) continue;
    const double chance = SampleExchange::ChanceThatTravels(chances[i]);
    const double draw = UniformFloat(RandomBits(keys, static_cast<uint32_t>(i)));
    if (!(draw < chance)) continue;
    chosen.samples.push_back(
        {.id = batch.samples[i].index, .pass = batch.samples[i].pass, .chance = chance});
    chosen.places.push_back(static_cast<int64_t>(i));
  }
  return chosen;
}

// Returns the samples of each worker, or none where they are not computed with.
Result<DataRunner::SamplesByWorker> DataRunner::Exchange(int64_t step, const Chosen& chosen) {
  const auto at = static_cast<uint64_t>(step);
  EQ_ASSIGN_OR_RETURN(
      const auto message,
      exchange_->OnBatch(at, chosen.samples, [this](int64_t id, std::span<uint8_t> pixels) {
        return dataset_->Pixels(Split::kTrain, id, pixels);
      }));
  MessageRound round(comm_, kSampleTag);
  for (int w = 0; w < comm_->world_size(); ++w) {
    if (w == comm_->rank()) continue;
    if (computes()) round.Receive(w, exchange_->MaxMessageBytes());
    if (!algorithm_.central || w == 0) round.Send(w, message);
  }
  comm_->SetActivity("waiting for the others' samples");
  const Stopwatch watch;
  EQ_ASSIGN_OR_RETURN(const auto coming, round.Finish());
  wait_seconds_ += watch.Seconds();
  SamplesByWorker samples(static_cast<size_t>(comm_->world_size()));
  if (!computes()) return samples;
  EQ_ASSIGN_OR_RETURN(samples[static_cast<size_t>(comm_->rank())],
                      exchange_->OnMessage(comm_->rank(), at, message));
  for (const auto& incoming : coming) {
    EQ_ASSIGN_OR_RETURN(samples[static_cast<size_t>(incoming->from())],
                        exchange_->OnMessage(incoming->from(), at, incoming->bytes()));
  }
  return samples;
}

// The samples as a batch that counts for `share` in the mean. Samples that were not sent count
// as zeros: the sum is divided by how many could have been.
Result<Batch> DataRunner::BatchOf(std::span<const ReceivedSample> samples, double share) const {
  const DatasetInfo& info = dataset_->info();
  const auto count = static_cast<int64_t>(samples.size());
  Batch batch{.inputs = at::empty(
                  {count, info.channels, info.image_size, info.image_size},
                  at::TensorOptions(at::kFloat).memory_format(at::MemoryFormat::ChannelsLast)),
              .labels = at::empty({count}, at::kLong)};
  batch.weights = at::empty({count});
  auto* out = batch.inputs.data_ptr<float>();
  const auto size = static_cast<size_t>(info.floats_per_sample());
  for (int64_t i = 0; i < count; ++i, out += size) {
    const ReceivedSample& sample = samples[static_cast<size_t>(i)];
    const StreamKey key = AugmentKey(options_.seed, sample.pass, sample.id);
    EQ_RETURN_IF_ERROR(
        dataset_->Prepare(sample.pixels, options_.augment ? &key : nullptr, {out, size}));
    batch.labels.data_ptr<int64_t>()[i] = sample.label;
    batch.weights.data_ptr<float>()[i] =
        static_cast<float>(share * sample.weight / static_cast<double>(options_.batch));
  }
  return batch;
}

// Adds the gradient of a batch to those of the step.
Status DataRunner::AddBatch(const Batch& batch) {
  const int64_t count = batch.labels.numel();
  if (count == 0) return {};
  pass_->Continue();
  EQ_RETURN_IF_ERROR(pass_->Run(batch));
  const std::span<const float> scalars = pass_->gradients().scalars();
  loss_ += static_cast<double>(scalars[0]);
  weight_ += batch.weights.sum().item<double>();
  accuracy_ += static_cast<double>(scalars[1]) * static_cast<double>(count);
  images_ += count;
  return {};
}

// The same of this worker's batch, and begins to average what its gradient lacks because its
// images are quantised. The others add the same floats in the same order.
Status DataRunner::AddOwn(const Batch& quantised, const Batch& original) {
  const std::span<float> gradient = pass_->gradients().bucket(bucket_);
  const std::vector<float> before(gradient.begin(), gradient.end());
  std::ranges::fill(gradient, 0.0f);
  EQ_RETURN_IF_ERROR(AddBatch(quantised));
  const std::vector<float> rough(gradient.begin(), gradient.end());
  std::ranges::fill(gradient, 0.0f);
  if (original.labels.numel() > 0) {
    // Running statistics are those of the quantised images, as on all other workers.
    const std::vector<uint8_t> buffers = replica_->CopyBuffers();
    pass_->Continue();
    EQ_RETURN_IF_ERROR(pass_->Run(original));
    replica_->RestoreBuffers(buffers);
  }
  const auto share = static_cast<float>(shares_[static_cast<size_t>(comm_->rank())]);
  for (const BucketSlot& slot : pass_->gradients().plan().buckets[bucket_].slots) {
    const std::span<float> values = refinement_->values(slot.parameter);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = (gradient[slot.offset + i] - rough[slot.offset + i]) / share;
    }
  }
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = before[i] + rough[i];
  return refinement_->Begin(0, static_cast<uint64_t>(step_));
}

// In the order of the workers, so that all who compute have the same bits.
Status DataRunner::Compute(const SamplesByWorker& samples, const Batch& own,
                           const Chosen& chosen) {
  loss_ = accuracy_ = weight_ = 0;
  images_ = 0;
  for (size_t w = 0; w < samples.size(); ++w) {
    EQ_ASSIGN_OR_RETURN(const Batch batch, BatchOf(samples[w], shares_[w]));
    if (!refinement_ || static_cast<int>(w) != comm_->rank()) {
      EQ_RETURN_IF_ERROR(AddBatch(batch));
      continue;
    }
    const at::Tensor places = at::tensor(chosen.places, at::kLong);
    Batch original{
        .inputs = own.inputs.index_select(0, places).contiguous(at::MemoryFormat::ChannelsLast),
        .labels = batch.labels};
    original.weights = batch.weights;
    EQ_RETURN_IF_ERROR(AddOwn(batch, original));
  }
  // The mean over what was sent.
  const std::span<float> scalars = pass_->gradients().scalars();
  scalars[0] = static_cast<float>(weight_ > 0 ? loss_ / weight_ : 0);
  scalars[1] = static_cast<float>(images_ > 0 ? accuracy_ / static_cast<double>(images_) : 0);
  return {};
}

// Adds the mean of what the quantised gradients lack.
Result<StepOutcome> DataRunner::Refine() {
  if (!refinement_) return StepOutcome{};
  comm_->SetActivity("waiting for refinements");
  EQ_ASSIGN_OR_RETURN(StepOutcome outcome, refinement_->Finish(0));
  if (outcome.skipped) return outcome;
  const std::span<float> gradient = pass_->gradients().bucket(bucket_);
  for (const BucketSlot& slot : pass_->gradients().plan().buckets[bucket_].slots) {
    const std::span<const float> values = refinement_->values(slot.parameter);
    for (size_t i = 0; i < values.size(); ++i) gradient[slot.offset + i] += values[i];
  }
  return outcome;
}

Result<StepOutcome> DataRunner::Move(double learning_rate) {
  EQ_ASSIGN_OR_RETURN(StepOutcome outcome, Refine());
  if (outcome.skipped) return outcome;
  if (!AllFinite(pass_->gradients().bucket(bucket_))) {
    outcome.skipped = true;
    outcome.reason = "the gradient has NaN or infinity";
    return outcome;
  }
  pass_->gradients().ClipNorm(options_.clip_norm);
  replica_->optimizer().Step(learning_rate);
  return outcome;
}

// Where worker 0 alone computes, it tells the others what came of the step, and they wait for
// it: they cannot run ahead.
Status DataRunner::Answer(StepOutcome* outcome) {
  if (!algorithm_.central) return {};
  const std::span<float> scalars = pass_->gradients().scalars();
  StepAnswer answer{.loss = scalars[0],
                    .accuracy = scalars[1],
                    .images = static_cast<uint32_t>(images_),
                    .skipped = outcome->skipped ? 1u : 0u};
  if (comm_->rank() == 0) {
    std::vector<std::unique_ptr<Transfer>> sent;
    for (int w = 1; w < comm_->world_size(); ++w) {
      sent.push_back(
          comm_->Send(w, kAnswerTag, BytesOf(std::span<const StepAnswer>(&answer, 1))));
    }
    for (const auto& transfer : sent) EQ_RETURN_IF_ERROR(transfer->Wait().status());
    return {};
  }
  comm_->SetActivity("waiting for worker 0");
  const Stopwatch watch;
  const auto incoming = comm_->Receive(0, kAnswerTag, sizeof(answer));
  EQ_ASSIGN_OR_RETURN(const size_t size, incoming->Wait());
  wait_seconds_ += watch.Seconds();
  if (size != sizeof(answer)) return CorruptData("worker 0's answer has a wrong size");
  std::memcpy(&answer, incoming->bytes().data(), sizeof(answer));
  scalars[0] = answer.loss;
  scalars[1] = answer.accuracy;
  images_ = answer.images;
  outcome->skipped = answer.skipped != 0;
  if (outcome->skipped) outcome->reason = "worker 0's gradient has NaN or infinity";
  return {};
}

// Where worker 0 alone computes, the others get its model when they need one.
Status DataRunner::ShareBuffers() {
  if (model_is_shared_) return {};
  for (const NamedTensor& t : replica_->State()) {
    const std::span<uint8_t> bytes(static_cast<uint8_t*>(t.tensor.data_ptr()),
                                   t.tensor.nbytes());
    if (comm_->rank() != 0) {
      const auto incoming = comm_->Receive(0, kModelTag, bytes.size());
      EQ_ASSIGN_OR_RETURN(const size_t size, incoming->Wait());
      if (size != bytes.size()) return CorruptData("worker 0's model has a wrong size");
      std::ranges::copy(incoming->bytes(), bytes.begin());
      continue;
    }
    std::vector<std::unique_ptr<Transfer>> sent;
    for (int w = 1; w < comm_->world_size(); ++w) {
      sent.push_back(comm_->Send(w, kModelTag, bytes));
    }
    for (const auto& transfer : sent) EQ_RETURN_IF_ERROR(transfer->Wait().status());
  }
  model_is_shared_ = true;
  return {};
}

Result<StepResult> DataRunner::Run(int64_t step, double learning_rate, bool inspect,
                                   TrainLoader& loader) {
  Strike(FaultMoment::kStep, step);
  const Stopwatch watch;
  wait_seconds_ = 0;
  step_ = step;
  comm_->SetActivity("loading data");
  EQ_ASSIGN_OR_RETURN(const Batch batch, loader.Next());
  const Chosen chosen = Choose(step, batch);
  EQ_ASSIGN_OR_RETURN(const SamplesByWorker samples, Exchange(step, chosen));
  // A forward pass that meets NaN also spoils the running statistics: a skipped step undoes it.
  const std::vector<uint8_t> buffers = replica_->CopyBuffers();
  pass_->Begin(step, inspect);
  replica_->optimizer().BeginStep(step, learning_rate);
  StepOutcome outcome;
  if (computes()) {
    EQ_RETURN_IF_ERROR(Compute(samples, batch, chosen));
    EQ_ASSIGN_OR_RETURN(outcome, Move(learning_rate));
  }
  EQ_RETURN_IF_ERROR(Answer(&outcome));
  comm_->SetActivity("between two steps");
  if (outcome.skipped) replica_->RestoreBuffers(buffers);
  ++rounds_;
  if (algorithm_.central) {
    model_is_shared_ = false;
    // The run ends with a model on all workers.
    if (step + 1 == total_steps_) EQ_RETURN_IF_ERROR(ShareBuffers());
  }
  StepRecord record = pass_->Record(learning_rate, outcome.skipped);
  record.images = images_;
  record.seconds.total = watch.Seconds();
  ReducerStats stats = refinement_ ? refinement_->TakeStats() : ReducerStats{};
  stats.wait_seconds += wait_seconds_;
  const Traffic traffic = comm_->traffic();
  AddCommunication(stats, traffic - counted_, &record);
  counted_ = traffic;
  return StepResult{record, std::move(outcome)};
}

StateIdentity DataRunner::Identity() const {
  const std::vector<std::string> specs =
      refinement_ ? refinement_->SpecsByParameter()
                  : std::vector<std::string>(shapes_.size(), options_.samples);
  return MakeStateIdentity(comm_->rank(), comm_->world_size(), shapes_, specs);
}

// What the others have of this worker's samples is not saved: after resuming these travel
// again, and arrive as the same bytes.
Status DataRunner::SaveMemory(Checkpoint* checkpoint) {
  SaveDoubles(kImportance, importance_.SaveState(), checkpoint);
  if (refinement_) SaveMemoryOf(*refinement_, "", checkpoint);
  replica_->SaveOwn(checkpoint);
  return {};
}

Status DataRunner::LoadMemory(const Checkpoint& checkpoint) {
  EQ_ASSIGN_OR_RETURN(const std::vector<double> state, LoadDoubles(checkpoint, kImportance));
  EQ_RETURN_IF_ERROR(importance_.LoadState(state));
  if (refinement_) EQ_RETURN_IF_ERROR(LoadMemoryOf(checkpoint, "", refinement_.get()));
  return replica_->LoadOwn(checkpoint);
}

Result<nlohmann::json> DataRunner::Samples() {
  const SampleTraffic own = sends_samples() ? exchange_->traffic() : SampleTraffic{};
  nlohmann::json sums = {{"codec", options_.samples}};
  for (const auto& [name, mine] : {std::pair("named", own.named),
                                   {"sent", own.sent},
                                   {"pixel_bytes", own.pixel_bytes},
                                   {"label_bits", own.label_bits},
                                   {"number_bits", own.number_bits}}) {
    EQ_ASSIGN_OR_RETURN(const std::vector<uint64_t> all, comm_->AllGather(mine));
    sums[name] = std::accumulate(all.begin(), all.end(), uint64_t{0});
  }
  return sums;
}

}  // namespace elastiquant
