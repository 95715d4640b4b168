// Training without a centre: each worker has a model of its own, which moves by its gradients
// and towards those of its neighbours (protocol/gossip). The model of evaluations, checkpoints
// and the summary is the mean of all, which exists nowhere else. All workers count alike,
// however many samples they have.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/layers/certificate.h"
#include "elastiquant/layers/gossip_exchange.h"
#include "elastiquant/layers/model_mean.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/backward_pass.h"
#include "elastiquant/train/round_runner.h"
#include "elastiquant/train/runner.h"

namespace elastiquant {

class GossipRunner final : public Runner, public RoundRunner {
 public:
  // Fails as BackwardPass, Graph::Parse and GossipNode do.
  static Result<std::unique_ptr<Runner>> Make(const TrainOptions& options,
                                              const RunnerPlace& place);

  // A step whose gradient is not finite is not made, and others need not know of it. After
  // options.max_skipped of these in a row it fails with kNonFinite.
  Result<StepResult> Run(int64_t step, double learning_rate, bool inspect,
                         TrainLoader& loader) override;

  Status BeginStretch() override;
  Status EndStretches() override { return FindShared(); }

  void ShowShared() override;
  void ShowOwn() override;
  // The mean of all models. What is sent for it is not counted as traffic of the training.
  Status ShareBuffers() override;
  bool has_replicas() const override { return false; }
  Result<std::string> OddCopies() override;
  bool has_own_models() const override { return true; }
  void StartFromReplica() override;

  StateIdentity Identity() const override;
  bool remembers() const override { return true; }
  Status SaveMemory(Checkpoint* checkpoint) override;
  Status LoadMemory(const Checkpoint& checkpoint) override;
  void TakeCommunication(StepRecord* record) override;

  void Strike(FaultMoment moment, int64_t step) override { pass_->Strike(moment, step); }
  Certificate& certificate() override { return *certificate_; }
  Result<std::string> NonFiniteLayer(const std::string& otherwise) override {
    return otherwise;
  }
  Counts counts() const override { return {rounds_, rounds_}; }
  nlohmann::json Network() const override;

  RoundRunner* rounds() override { return this; }
  void LeaveGroup() override;
  Status JoinGroup(const std::vector<double>& weights, bool afresh) override;
  std::vector<std::vector<int>> PartsOf(const std::vector<int>& group) const override;
  Status CheckThoseLeft(const std::vector<int>& group) const override;
  int64_t RoundAfter(int64_t step) const override { return step / RoundOf(options_) + 1; }
  uint64_t reached() const override { return 0; }  // nothing beyond the run's own milestones
  void Regroup(uint64_t /*furthest*/) override {}
  std::vector<std::span<float>> SharedState() override;
  Status Admit(const std::vector<int>& newcomers) override;
  void StartFromShared(int64_t step) override;

 private:
  GossipRunner(const TrainOptions& options, const RunnerPlace& place)
      : options_(options),
        comm_(place.comm),
        replica_(place.replica),
        total_steps_(place.total_steps),
        worker_(place.worker),
        workers_(place.workers),
        may_lose_(place.may_lose),
        shares_steps_(SharesSteps(options)) {}

  // What all have together.
  struct Shared {
    ModelMean mean;
    std::vector<uint8_t> buffers;
  };

  std::vector<float> Weights() const;
  void SetWeights(std::span<const float> weights);
  Status MakeExchange();
  bool EndsRound(int64_t step) const;
  Status BeginRound();
  Status MakeStep(int64_t step, double learning_rate, TrainLoader& loader);
  Status EndRound();
  Status Settle();
  Status FindShared();

  const TrainOptions options_;
  Communicator* const comm_;
  Replica* const replica_;
  const int64_t total_steps_;
  const int worker_, workers_;  // this one's name, which is its node, and the number of all
  const bool may_lose_;
  const bool shares_steps_;
  int64_t own_steps_ = 0;  // that this worker has made, if it shares them
  std::vector<ParameterShape> shapes_;
  std::unique_ptr<BackwardPass> pass_;
  std::unique_ptr<Certificate> certificate_;  // of no messages: what is sent are no gradients
  std::shared_ptr<const Graph> graph_;
  double gap_ = 1;  // its spectral gap, which takes a while to find for many workers
  GossipOptions gossip_;
  std::unique_ptr<GossipExchange> exchange_;
  Status start_status_;       // of StartFromReplica
  std::vector<float> start_;  // the weights at the beginning of the round
  bool is_in_round_ = false;  // whether local steps have been made since
  // Of a step that has been made, but not yet ended by what comes of others.
  struct Made {
    StepRecord record;
    Stopwatch watch;
    bool is_mixed = false;  // whether its round has ended
  };
  std::optional<Made> made_;
  std::vector<float> handed_;         // SharedState
  std::optional<Shared> shared_;      // of the weights as they are, if it is known
  double distance_ = 0;               // of the models from their mean, as last found
  std::vector<float> own_weights_;    // while the shared model is shown
  std::vector<uint8_t> own_buffers_;  // while the shared model is shown
  uint64_t rounds_ = 0;
  uint64_t rounds_before_ = 0;  // of them, made before it was last taken back
  Traffic counted_;
};

}  // namespace elastiquant
