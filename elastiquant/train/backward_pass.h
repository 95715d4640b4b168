// Computes one worker's gradient of a batch, with the faults that a run was asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/data/loader.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/layers/bucket_plan.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/runs/run_record.h"
#include "elastiquant/train/device_pace.h"
#include "elastiquant/train/fault.h"
#include "elastiquant/train/flat_gradients.h"
#include "elastiquant/train/gradient_replay.h"
#include "elastiquant/train/replica.h"
#include "elastiquant/train/runner.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// Returns a plan with all gradients in bucket 0, in the order of `shapes`, and the pass's
// scalars in a bucket of their own.
Result<BucketPlan> PlanOneBucket(std::span<const ParameterShape> shapes);

// Runners have one each.
class BackwardPass {
 public:
  static constexpr size_t kScalars = 2;  // loss and accuracy, beside the gradients

  // Called on the thread that runs backward, as soon as it has filled a bucket.
  using ReadyFunction = std::function<Status(size_t bucket)>;

  // `plan` must have kScalars scalars or more, of which the first are the pass's. `ready` may
  // be null. Fails as ParseFaults does.
  static Result<std::unique_ptr<BackwardPass>> Make(const TrainOptions& options,
                                                    const RunnerPlace& place, BucketPlan plan,
                                                    ReadyFunction ready);

  // For runners that keep their gradients, or copy them before they send any: how these lie is
  // then left to the pass.
  static Result<std::unique_ptr<BackwardPass>> MakeForOwn(const TrainOptions& options,
                                                          const RunnerPlace& place);

  FlatGradients& gradients() { return *gradients_; }
  const FlatGradients& gradients() const { return *gradients_; }

  // Must be called before Run in each step, counted from 0; makes the gradients zero.
  void Begin(int64_t step, bool inspect);
  // Must be called before Run if it is not the step's first: what it finds is then added to the
  // gradients.
  void Continue() { gradients_->Continue(); }
  // Fills the gradients and the scalars: the loss, and the part of targets that were hit.
  // Fails as `ready` does.
  Status Run(const Batch& batch);

  // Makes a local step, of which no other worker knows: Begin, Run, and the optimiser's step at
  // this rate with the gradients clipped to options.clip_norm. Returns whether it was made: if
  // a gradient is not finite, weights and buffers are as they were. Fails as CheckFinite does.
  Result<bool> TrainAlone(int64_t step, double learning_rate, const Batch& batch);

  // Returns whether all gradients are finite. Fails with kNonFinite after options.max_skipped
  // steps in a row in which they were not. For runners whose workers need not agree on that.
  Result<bool> CheckFinite();

  // As Runner::Strike and Runner::NonFiniteLayer.
  void Strike(FaultMoment moment, int64_t step);
  // Whether a fault of this kind was asked for on this worker in the step that was begun last.
  bool IsDue(FaultKind kind) const;
  Result<std::string> NonFiniteLayer(const std::string& otherwise);

  // Returns the loss of the pass, or once it was exchanged the mean over the workers; 0 of a
  // replayed step, which has none.
  double loss() const { return static_cast<double>(gradients_->scalars()[0]); }
  // Returns the record of the step, with the scalars as they are now. Replayed steps have
  // neither loss nor accuracy.
  StepRecord Record(double learning_rate, bool skipped);

 private:
  BackwardPass(const TrainOptions& options, const RunnerPlace& place, ReadyFunction ready)
      : bf16_(options.precision == "bf16"),
        batch_(options.batch),
        clip_norm_(options.clip_norm),
        max_skipped_(options.max_skipped),
        worker_(place.worker),
        comm_(place.comm),
        replica_(place.replica),
        ready_(std::move(ready)) {}
  void OnReady(size_t bucket);
  void Compute(const Batch& batch);
  void Replay();

  const bool bf16_;
  const int64_t batch_;
  const double clip_norm_;
  const int64_t max_skipped_;
  const int worker_;  // its name, whatever its rank in the group
  Communicator* const comm_;
  Replica* const replica_;
  const ReadyFunction ready_;
  std::vector<Fault> faults_;
  std::unique_ptr<FlatGradients> gradients_;
  std::unique_ptr<DevicePace> pace_;        // with options.compute
  std::unique_ptr<GradientReplay> replay_;  // with options.replay
  size_t all_ = 0;                          // values in buckets
  int64_t bad_steps_ = 0;                   // in a row, as CheckFinite has found
  int64_t step_ = 0;
  int64_t images_ = 0;  // of all workers, in this step
  Status status_;       // of `ready_`, in this step
};

// Adds to a record what the step has sent and received, and where its time went.
void AddCommunication(const ReducerStats& stats, const Traffic& step, StepRecord* record);

}  // namespace elastiquant
