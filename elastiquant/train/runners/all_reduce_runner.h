// Training by an all-reduce in each step: a batch, its gradient, the mean over the workers, and
// the weights that move by it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/layers/layer_reduction.h"
#include "elastiquant/layers/memory_units.h"
#include "elastiquant/layers/run_codecs.h"
#include "elastiquant/train/backward_pass.h"
#include "elastiquant/train/codecs/own_codecs.h"
#include "elastiquant/train/gradient_variance.h"
#include "elastiquant/train/runner.h"

namespace elastiquant {

class AllReduceRunner final : public Runner {
 public:
  // Collective. `dump` may be null. Fails as ParseFaults, MakeCodec, PlanBuckets and
  // LayerReduction::Make do.
  static Result<std::unique_ptr<Runner>> Make(const TrainOptions& options,
                                              const RunnerPlace& place, GradientDump* dump);

  Result<StepResult> Run(int64_t step, double learning_rate, bool inspect,
                         TrainLoader& loader) override;
  Status BeginEpoch(int64_t epoch) override;
  std::string AdaptedCodec() const override;
  Status UseCodec(const std::string& spec) override;
  // They are worker 0's, unless workers have data of their own.
  Status ShareBuffers() override {
    if (weights_.empty()) return replica_->TakeOverBuffers(*comm_);
    return replica_->AverageBuffers(*comm_, weights_);
  }

  StateIdentity Identity() const override;
  bool remembers() const override {
    const bool has_own_statistics = !weights_.empty() && replica_->has_buffers();
    return !codec().StateFields().empty() || replica_->has_own_state() || own_ != nullptr ||
           has_own_statistics;
  }
  Status SaveMemory(Checkpoint* checkpoint) override;
  Status LoadMemory(const Checkpoint& checkpoint) override;

  void Strike(FaultMoment moment, int64_t step) override { pass_->Strike(moment, step); }
  Certificate& certificate() override { return layers_->certificate(); }
  Result<std::string> NonFiniteLayer(const std::string& otherwise) override {
    return pass_->NonFiniteLayer(otherwise);
  }
  Counts counts() const override { return {rounds_, rounds_}; }
  nlohmann::json Policy() const override { return own_ ? own_->Policy() : nullptr; }

 private:
  AllReduceRunner(const TrainOptions& options, const RunnerPlace& place, GradientDump* dump)
      : options_(options),
        comm_(place.comm),
        replica_(place.replica),
        weights_(place.weights),
        dump_(dump) {}

  Status MakeLayers(const TrainOptions& options, const RunnerPlace& place);
  Result<BucketPlan> Plan(const TrainOptions& options, const RunnerPlace& place);
  Status EndOwn(const StepOutcome& outcome, double learning_rate, StepRecord* record);
  std::span<float> own_scalars() {
    return gradients().scalars().subspan(BackwardPass::kScalars);
  }
  const Codec& codec() const;  // the one that the run was asked to use
  Result<ExchangeChoice> ChoiceOf(size_t bucket, std::shared_ptr<const Codec> codec) const;
  Status OnReady(size_t bucket);
  void Capture(size_t bucket);
  Result<StepOutcome> Reduce(int64_t step, double learning_rate, const Batch& batch);
  Result<StepOutcome> Exchange(uint64_t step, const Batch& batch);
  Status MeasureVariance(StepRecord* record);
  Result<GradientVariance> VarianceOf(bool uncompressed);
  FlatGradients& gradients() { return pass_->gradients(); }
  const BucketPlan& plan() const { return pass_->gradients().plan(); }

  const TrainOptions options_;
  Communicator* comm_;
  Replica* replica_;
  const std::vector<double> weights_;  // RunnerPlace::weights
  GradientDump* const dump_;           // or null
  std::unique_ptr<BackwardPass> pass_;
  std::vector<ParameterShape> shapes_;
  std::unique_ptr<RunCodecs> codecs_;
  std::unique_ptr<MemoryUnits> units_;  // the learning rate, if the codec has it in its memory
  std::unique_ptr<OwnCodecs> own_;      // what this worker chooses for itself; may be null
  std::unique_ptr<LayerReduction> layers_;
  int64_t exact_steps_ = 0;    // first steps that go uncompressed, because there is a metric
  int64_t step_ = 0;           // the newest step
  uint64_t rounds_ = 0;        // steps whose means were exchanged
  bool dumping_ = false;       // whether this step's gradient is dumped
  bool uncompressed_ = false;  // whether this step goes so
  // With options.measure_variance: batches that no step sees.
  std::unique_ptr<TrainLoader> other_batches_;
  bool measures_variance_ = false;  // whether what is sent now is for that
  uint64_t estimates_ = 0;          // made so far
};

}  // namespace elastiquant
