// Runs one step of training on one worker: a batch, its gradient, the mean over the workers,
// and the weights that move by it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/data/loader.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/layers/layer_reduction.h"
#include "elastiquant/layers/memory_units.h"
#include "elastiquant/layers/run_codecs.h"
#include "elastiquant/layers/state_identity.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/runs/checkpoint.h"
#include "elastiquant/runs/run_record.h"
#include "elastiquant/train/fault.h"
#include "elastiquant/train/flat_gradients.h"
#include "elastiquant/train/gradient_dump.h"
#include "elastiquant/train/replica.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// What came of one step.
struct StepResult {
  StepRecord record;    // complete but for the epoch
  StepOutcome outcome;  // if skipped, the replica is as it was
};

// Runs the steps of a run on one worker. Trainer has one.
class StepRunner {
 public:
  // Collective. `dump` may be null; the others must outlive the runner. `weights` are those of
  // ReducerOptions; loss and accuracy are weighted by them too. Fails as ParseFaults,
  // MakeCodec, PlanBuckets and LayerReduction::Make do.
  static Result<std::unique_ptr<StepRunner>> Make(const TrainOptions& options,
                                                  Communicator* comm, Replica* replica,
                                                  std::unique_ptr<GradientDump> dump,
                                                  std::vector<double> weights);

  // Collective. Runs step `step`, counted from 0. If `inspect` is set, looks for the layer in
  // which a NaN or infinity arises first, should there be one.
  Result<StepResult> Run(int64_t step, double learning_rate, bool inspect, TrainLoader& loader);

  // Must be called before the steps of an epoch, counted from 1, and after resuming within it,
  // because some codecs send more in the first epochs.
  Status BeginEpoch(int64_t epoch);
  // AdaptedCodec returns the spec of an adaptive codec as it has become, which must be given to
  // UseCodec on resuming; it is empty if the run's codec does not adapt.
  std::string AdaptedCodec() const;
  Status UseCodec(const std::string& spec);

  // Makes those faults happen that the run was asked for at this moment, for tests.
  void Strike(FaultMoment moment, int64_t step);

  // Returns whose memory it is.
  StateIdentity Identity() const;
  // These save and load what the codecs and the optimiser remember on this worker alone. Must
  // be called between steps.
  bool remembers() const { return !codec().StateFields().empty() || replica_->has_own_state(); }
  void SaveMemory(Checkpoint* checkpoint) const;
  Status LoadMemory(const Checkpoint& checkpoint);

  // Returns the certificate, which the messages of measured steps go into.
  Certificate& certificate() { return layers_->certificate(); }

  // Collective. Returns, after a skipped step with `inspect`, in which layer the NaN or
  // infinity was, in words, or `otherwise` if no worker has found out.
  Result<std::string> NonFiniteLayer(const std::string& otherwise);

 private:
  StepRunner(const TrainOptions& options, Communicator* comm, Replica* replica,
             std::unique_ptr<GradientDump> dump)
      : options_(options), comm_(comm), replica_(replica), dump_(std::move(dump)) {}

  Status MakeLayers(const TrainOptions& options, std::vector<double> weights);
  const Codec& codec() const;  // the one that the run was asked to use
  Result<ExchangeChoice> ChoiceOf(size_t bucket, std::shared_ptr<const Codec> codec) const;
  void OnReady(size_t bucket);
  void Capture(size_t bucket);
  bool NanIsDue(int64_t step) const;
  Result<StepOutcome> Reduce(int64_t step, double learning_rate, const Batch& batch);
  Status Backward(int64_t step, const Batch& batch);
  void AddCommunication(const Traffic& before, StepRecord* record);

  const TrainOptions options_;
  Communicator* comm_;
  Replica* replica_;
  std::unique_ptr<GradientDump> dump_;
  std::vector<Fault> faults_;
  std::unique_ptr<FlatGradients> gradients_;
  std::vector<ParameterShape> shapes_;
  std::unique_ptr<RunCodecs> codecs_;
  std::unique_ptr<MemoryUnits> units_;  // the learning rate, if the codec has it in its memory
  std::unique_ptr<LayerReduction> layers_;
  int64_t exact_steps_ = 0;  // first steps that go uncompressed, because there is a metric
  int64_t step_ = 0;         // the newest step
  bool dumping_ = false;     // whether this step's gradient is dumped
  Status backward_status_;
};

}  // namespace elastiquant
