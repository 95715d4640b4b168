#include "elastiquant/train/backward_pass.h"

#include <c10/util/Exception.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "elastiquant/kernels/norms.h"
#include "elastiquant/train/prediction.h"

namespace elastiquant {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Result<BucketPlan> PlanOneBucket(std::span<const ParameterShape> shapes) {
  EQ_ASSIGN_OR_RETURN(
      BucketPlan plan,
      PlanBuckets(shapes, {.bucket_elements = std::numeric_limits<size_t>::max(),
                           .exact = "none",
                           .scalars = BackwardPass::kScalars}));
  if (plan.buckets.size() == 2 && plan.buckets[0].slots.size() == shapes.size()) return plan;
  return Internal("gradients are not in one bucket, and loss and accuracy in another");
}

Result<std::unique_ptr<BackwardPass>> BackwardPass::Make(const TrainOptions& options,
                                                         const RunnerPlace& place,
                                                         BucketPlan plan, ReadyFunction ready) {
  std::unique_ptr<BackwardPass> pass(new BackwardPass(options, place, std::move(ready)));
  EQ_ASSIGN_OR_RETURN(pass->faults_, ParseFaults(options.inject));
  const std::vector<ParameterShape> shapes = ShapesOf(place.replica->parameters());
  if (!options.compute.empty()) {
    EQ_ASSIGN_OR_RETURN(pass->pace_,
                        DevicePace::Make(options, place.worker, place.workers, shapes));
  }
  if (!options.replay.empty()) {
    EQ_ASSIGN_OR_RETURN(pass->replay_, GradientReplay::Open(options.replay, shapes));
  }
  for (const PlannedBucket& bucket : plan.buckets) {
    if (!bucket.slots.empty()) pass->all_ += bucket.elements;
  }
  pass->gradients_ = std::make_unique<FlatGradients>(
      place.replica->parameters(), std::move(plan),
      [pass = pass.get()](size_t bucket) { pass->OnReady(bucket); });
  return pass;
}

Result<std::unique_ptr<BackwardPass>> BackwardPass::MakeForOwn(const TrainOptions& options,
                                                               const RunnerPlace& place) {
  const std::vector<ParameterShape> shapes = ShapesOf(place.replica->parameters());
  EQ_ASSIGN_OR_RETURN(BucketPlan plan,
                      PlanBuckets(shapes, {.exact = "none", .scalars = kScalars}));
  return Make(options, place, std::move(plan), nullptr);
}

void BackwardPass::Begin(int64_t step, bool inspect) {
  step_ = step;
  gradients_->Begin();
  gradients_->set_inspect(inspect);
}

void BackwardPass::OnReady(size_t bucket) {
  const PlannedBucket& planned = gradients_->plan().buckets[bucket];
  if (pace_ && !planned.slots.empty()) pace_->AwaitFilled(planned.elements, all_);
  if (ready_) {
    const Status status = ready_(bucket);
    if (!status.ok()) status_ = status;
  }
  Strike(FaultMoment::kBackward, step_);
}

Status BackwardPass::Run(const Batch& batch) {
  comm_->SetActivity("in forward or backward");
  if (pace_) pace_->Begin(replica_->model(), batch);
  if (replay_) {
    Replay();
  } else {
    Compute(batch);
  }
  gradients_->FinishBackward();
  if (pace_) pace_->End();
  return status_;
}

void BackwardPass::Compute(const Batch& batch) {
  Prediction prediction = Predict(replica_->model(), batch, bf16_);
  if (IsDue(FaultKind::kNan)) prediction.loss = prediction.loss * kNan;
  const std::span<float> scalars = gradients_->scalars();
  scalars[0] = prediction.loss.item<float>();
  scalars[1] = static_cast<float>(prediction.correct) / static_cast<float>(prediction.targets);
  images_ = batch.labels.numel() * comm_->world_size();
  prediction.loss.backward();
}

// In the order in which backward would fill the buckets. Each worker meets all recorded
// gradients in turn, and neighbours different ones.
void BackwardPass::Replay() {
  std::ranges::fill(gradients_->scalars().first(kScalars), 0.0F);
  images_ = batch_ * comm_->world_size();
  const std::vector<PlannedBucket>& buckets = gradients_->plan().buckets;
  const auto index = static_cast<uint64_t>(step_ + worker_);
  for (size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].slots.empty()) continue;
    replay_->Fill(index, buckets[b], gradients_->bucket(b));
    gradients_->SetFilled(b);
  }
}

Result<bool> BackwardPass::TrainAlone(int64_t step, double learning_rate, const Batch& batch) {
  // A forward pass that meets NaN also spoils the running statistics.
  const std::vector<uint8_t> buffers = replica_->CopyBuffers();
  Begin(step, /*inspect=*/false);
  replica_->optimizer().BeginStep(step, learning_rate);
  EQ_RETURN_IF_ERROR(Run(batch));
  comm_->SetActivity("between two steps");
  EQ_ASSIGN_OR_RETURN(const bool good, CheckFinite());
  if (!good) {
    replica_->RestoreBuffers(buffers);
    return false;
  }
  gradients_->ClipNorm(clip_norm_);
  replica_->optimizer().Step(learning_rate);
  return true;
}

Result<bool> BackwardPass::CheckFinite() {
  bool good = true;
  for (size_t b = 0; good && b < gradients_->plan().buckets.size(); ++b) {
    good = AllFinite(gradients_->bucket(b));
  }
  bad_steps_ = good ? 0 : bad_steps_ + 1;
  if (bad_steps_ == 0 || bad_steps_ < max_skipped_) return good;
  return NonFinite(
      "gave up at step " + std::to_string(step_ + 1) + " after " + std::to_string(bad_steps_) +
      " steps in a row in which this worker's gradient had NaN or infinity. A "
      "lower --lr or a --warmup may help; --max-skipped sets how many are allowed");
}

void BackwardPass::Strike(FaultMoment moment, int64_t step) {
  for (const Fault& fault : faults_) {
    if (fault.moment != moment || !fault.Strikes(step, worker_)) continue;
    TORCH_CHECK(fault.kind != FaultKind::kThrow, "thrown on purpose");
    if (fault.kind == FaultKind::kQuit) _exit(0);
    if (fault.kind == FaultKind::kExit) _exit(9);
    if (fault.kind == FaultKind::kKill) raise(SIGKILL);
    if (fault.kind == FaultKind::kStop) raise(SIGSTOP);
    while (fault.kind == FaultKind::kHang) pause();
    if (fault.kind == FaultKind::kDrift) replica_->Drift();
  }
}

bool BackwardPass::IsDue(FaultKind kind) const {
  return std::ranges::any_of(faults_, [&](const Fault& fault) {
    return fault.kind == kind && fault.Strikes(step_, worker_);
  });
}

Result<std::string> BackwardPass::NonFiniteLayer(const std::string& otherwise) {
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

StepRecord BackwardPass::Record(double learning_rate, bool skipped) {
  const std::span<float> scalars = gradients_->scalars();
  StepRecord record;
  record.step = step_ + 1;
  const bool has_loss = !skipped && replay_ == nullptr;
  record.loss = has_loss ? static_cast<double>(scalars[0]) : kNan;
  record.accuracy = has_loss ? 100.0 * static_cast<double>(scalars[1]) : kNan;
  record.learning_rate = learning_rate;
  record.skipped = skipped;
  record.images = images_;
  return record;
}

void AddCommunication(const ReducerStats& stats, const Traffic& step, StepRecord* record) {
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

}  // namespace elastiquant
