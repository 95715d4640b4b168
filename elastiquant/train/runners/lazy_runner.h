// Training in which a worker sends its gradient only if it has changed enough since it was sent
// last (protocol/lazy.h): LAG, LAQ and LASG. Each message goes to all workers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "elastiquant/layers/certificate.h"
#include "elastiquant/protocol/lazy.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/backward_pass.h"
#include "elastiquant/train/runner.h"

namespace elastiquant {

class LazyRunner final : public Runner {
 public:
  // Fails as BackwardPass and Lazy do, and if workers shall count for different shares of the
  // mean, for which the published rules are not made.
  static Result<std::unique_ptr<Runner>> Make(const TrainOptions& options,
                                              const RunnerPlace& place);

  Result<StepResult> Run(int64_t step, double learning_rate, bool inspect,
                         TrainLoader& loader) override;

  // Each worker knows the statistics of its own share alone, which with some partitions differ.
  Status ShareBuffers() override { return replica_->AverageBuffers(*comm_, {}); }

  StateIdentity Identity() const override;
  bool remembers() const override { return true; }
  Status SaveMemory(Checkpoint* checkpoint) override;
  Status LoadMemory(const Checkpoint& checkpoint) override;

  void Strike(FaultMoment moment, int64_t step) override { pass_->Strike(moment, step); }
  Certificate& certificate() override { return *certificate_; }
  Result<std::string> NonFiniteLayer(const std::string& otherwise) override {
    return pass_->NonFiniteLayer(otherwise);
  }
  Counts counts() const override { return {rounds_, machine_->uploads()}; }

 private:
  LazyRunner(const TrainOptions& options, const RunnerPlace& place)
      : options_(options), comm_(place.comm), replica_(place.replica) {}

  Status MakePass(const RunnerPlace& place);
  Status MakeMachine(const Algorithm& algorithm);
  std::span<float> gradient() { return pass_->gradients().bucket(bucket_); }
  std::vector<std::span<float>> Places() const;
  std::vector<float> Weights() const;
  void SetWeights(std::span<const float> weights);
  Status ComputeReference(int64_t step, const Batch& batch);
  Result<LazyApply> Exchange();
  void Move(const LazyApply& apply, double learning_rate);

  const TrainOptions options_;
  Communicator* const comm_;
  Replica* const replica_;
  std::vector<ParameterShape> shapes_;
  std::unique_ptr<BackwardPass> pass_;
  size_t bucket_ = 0;  // the one that has all gradients
  std::optional<Lazy> machine_;
  std::unique_ptr<Certificate> certificate_;  // empty: what is quantised are differences
  std::vector<float> weights_, reference_;    // of this step
  double wait_seconds_ = 0;                   // likewise
  uint64_t rounds_ = 0;
};

}  // namespace elastiquant
