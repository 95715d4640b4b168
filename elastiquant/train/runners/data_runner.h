// Training in which workers send samples, quantised, in place of gradients: each computes the
// gradient of all workers' batches by itself, so that neither gradients nor the model travel,
// or worker 0 alone does, and the others send it their samples (protocol/sample_exchange.h).
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "elastiquant/layers/fragment_reduction.h"
#include "elastiquant/policy/sample_importance.h"
#include "elastiquant/protocol/sample_exchange.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/backward_pass.h"
#include "elastiquant/train/runner.h"

namespace elastiquant {

class DataRunner final : public Runner {
 public:
  // Collective. Fails as MakeSampleCodec and FragmentReduction do, and with InvalidArgument if
  // the data are not images that are stored as bytes.
  static Result<std::unique_ptr<Runner>> Make(const TrainOptions& options,
                                              const RunnerPlace& place);

  // A step whose gradient is not finite is not made. As all who compute have the same gradient,
  // they need not tell each other.
  Result<StepResult> Run(int64_t step, double learning_rate, bool inspect,
                         TrainLoader& loader) override;

  // Running statistics are those of all workers' batches, one after the other: the same on all
  // who compute. Where worker 0 alone does, it sends the others the model.
  Status ShareBuffers() override;
  bool has_replicas() const override { return !algorithm_.central; }

  StateIdentity Identity() const override;
  // Worker 0 has all that there is, if it alone computes.
  bool remembers() const override { return !algorithm_.central; }
  Status SaveMemory(Checkpoint* checkpoint) override;
  Status LoadMemory(const Checkpoint& checkpoint) override;

  void Strike(FaultMoment moment, int64_t step) override { pass_->Strike(moment, step); }
  Certificate& certificate() override {
    return refinement_ ? refinement_->certificate() : *certificate_;
  }
  Result<std::string> NonFiniteLayer(const std::string& otherwise) override {
    return pass_->NonFiniteLayer(otherwise);
  }
  Counts counts() const override { return {rounds_, sends_samples() ? rounds_ : 0}; }
  Result<nlohmann::json> Samples() override;

 private:
  DataRunner(const TrainOptions& options, const RunnerPlace& place, const Algorithm& algorithm);
  Status MakePass(const RunnerPlace& place);
  Status MakeExchange(const RunnerPlace& place);
  Status MakeRefinement();

  // The samples of this worker's batch that are sent, and which of the batch they are.
  struct Chosen {
    std::vector<SampleToSend> samples;
    std::vector<int64_t> places;
  };
  using SamplesByWorker = std::vector<std::vector<ReceivedSample>>;

  bool computes() const { return !algorithm_.central || comm_->rank() == 0; }
  // Worker 0 keeps its own where it alone computes.
  bool sends_samples() const { return !algorithm_.central || comm_->rank() != 0; }
  std::vector<double> Scores(const Batch& batch);
  Chosen Choose(int64_t step, const Batch& batch);
  Result<SamplesByWorker> Exchange(int64_t step, const Chosen& chosen);
  Result<Batch> BatchOf(std::span<const ReceivedSample> samples, double share) const;
  Status Compute(const SamplesByWorker& samples, const Batch& own, const Chosen& chosen);
  Status AddBatch(const Batch& batch);
  Status AddOwn(const Batch& quantised, const Batch& original);
  Result<StepOutcome> Refine();
  Result<StepOutcome> Move(double learning_rate);
  Status Answer(StepOutcome* outcome);

  const TrainOptions options_;
  const Algorithm algorithm_;
  Communicator* const comm_;
  Replica* const replica_;
  const int64_t total_steps_;
  const std::shared_ptr<const Dataset> dataset_;
  std::vector<double> shares_;  // of the mean, by worker
  std::vector<ParameterShape> shapes_;
  std::unique_ptr<BackwardPass> pass_;
  size_t bucket_ = 0;  // that has all gradients
  std::optional<SampleExchange> exchange_;
  policy::SampleImportance importance_;
  std::unique_ptr<FragmentReduction> refinement_;
  std::unique_ptr<Certificate> certificate_;  // empty, if there is no refinement

  // Of this step: sums over the samples that were sent.
  double loss_ = 0, accuracy_ = 0, weight_ = 0;
  int64_t images_ = 0;
  int64_t step_ = 0;
  double wait_seconds_ = 0;

  bool model_is_shared_ = true;  // where worker 0 alone computes
  Traffic counted_;              // in the records so far: the model travels between steps
  uint64_t rounds_ = 0;
};

}  // namespace elastiquant
