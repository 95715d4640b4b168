// Training without waiting for the mean of gradients: it is applied some steps after they were
// sent (protocol/delayed_steps.h), so that neither a link's delay nor its rate stops a worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "elastiquant/layers/fragment_reduction.h"
#include "elastiquant/protocol/delayed_steps.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/backward_pass.h"
#include "elastiquant/train/runner.h"

namespace elastiquant {

class DelayedRunner final : public Runner {
 public:
  // Collective. Fails as BackwardPass, FragmentReduction and DelayedSteps do.
  static Result<std::unique_ptr<Runner>> Make(const TrainOptions& options,
                                              const RunnerPlace& place);

  // The outcome is skipped if gradients of an earlier step were lost, because some worker could
  // not encode them.
  Result<StepResult> Run(int64_t step, double learning_rate, bool inspect,
                         TrainLoader& loader) override;

  void ShowShared() override { machine_->ShowShared(); }
  void ShowOwn() override { machine_->ShowLocal(); }
  Status ShareBuffers() override { return replica_->AverageBuffers(*comm_, weights_); }
  void StartFromReplica() override { machine_->StartFrom(); }

  StateIdentity Identity() const override;
  bool remembers() const override { return true; }
  Status SaveMemory(Checkpoint* checkpoint) override;
  Status LoadMemory(const Checkpoint& checkpoint) override;
  void TakeCommunication(StepRecord* record) override;

  void Strike(FaultMoment moment, int64_t step) override { pass_->Strike(moment, step); }
  Certificate& certificate() override { return slots_[0].reduction->certificate(); }
  Result<std::string> NonFiniteLayer(const std::string& otherwise) override {
    return pass_->NonFiniteLayer(otherwise);
  }
  Counts counts() const override { return {rounds_, rounds_}; }

 private:
  // A round's gradients on their way to their mean. A round takes the slot of its number modulo
  // how many there are, each with buffers and a memory of its own.
  struct Slot {
    std::unique_ptr<FragmentReduction> reduction;
    std::optional<StepOutcome> arrived;  // waited for, but not yet applied
  };

  DelayedRunner(const TrainOptions& options, const RunnerPlace& place);
  Status MakeMachine(const RunnerPlace& place, const Algorithm& algorithm);
  Status MakeSlots();
  Slot& SlotOf(int64_t round) { return slots_[static_cast<size_t>(round) % slots_.size()]; }
  void StepBy(const DelayedSteps::Values& gradient);
  Result<StepOutcome> Act(const std::vector<DelayedAction>& actions, uint64_t first_key);
  Status Send(int64_t round, uint64_t key);
  Result<StepOutcome> Apply(int64_t round);
  Status Arrive(Slot* slot);

  const TrainOptions options_;
  Communicator* const comm_;
  Replica* const replica_;
  const int64_t total_steps_;
  const std::vector<double> weights_;  // RunnerPlace::weights
  std::vector<ParameterShape> shapes_;
  std::unique_ptr<BackwardPass> pass_;
  std::optional<DelayedSteps> machine_;
  std::vector<Slot> slots_;
  std::vector<uint8_t> kept_;  // the optimiser's state, while a step is only tried
  double learning_rate_ = 0;
  uint64_t rounds_ = 0;
  Traffic counted_;  // in the records so far: messages travel between steps, too
};

}  // namespace elastiquant
