// Training alone for some steps, then averaging what came of them: local SGD, DiLoCo, its
// streaming and eager forms, and SparseLoCo (protocol/local_steps.h). Between two exchanges
// every worker has weights of its own; the model that all share is the anchor.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "elastiquant/base/stopwatch.h"
#include "elastiquant/layers/fragment_reduction.h"
#include "elastiquant/protocol/local_steps.h"
#include "elastiquant/protocol/round_course.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/backward_pass.h"
#include "elastiquant/train/codecs/own_codecs.h"
#include "elastiquant/train/runner.h"

namespace elastiquant {

class LocalRunner final : public Runner, public RoundRunner {
 public:
  // Collective. Fails as BackwardPass, FragmentReduction and LocalSteps do, and if the model
  // has fewer layers than there are fragments.
  static Result<std::unique_ptr<Runner>> Make(const TrainOptions& options,
                                              const RunnerPlace& place);

  // A step whose gradient is not finite is not made, and others need not know of it. After
  // options.max_skipped of these in a row it fails with kNonFinite. The outcome is skipped if
  // a round's work was lost, because some worker could not encode what came of it.
  Result<StepResult> Run(int64_t step, double learning_rate, bool inspect,
                         TrainLoader& loader) override;

  void ShowShared() override { machine_->ShowShared(); }
  void ShowOwn() override { machine_->ShowLocal(); }
  // The mean over the workers of running means, and of the second moments that running
  // variances stand for.
  Status ShareBuffers() override { return replica_->AverageBuffers(*comm_, weights_); }
  void StartFromReplica() override { machine_->StartFrom(); }

  StateIdentity Identity() const override;
  bool remembers() const override { return true; }
  Status SaveMemory(Checkpoint* checkpoint) override;
  Status LoadMemory(const Checkpoint& checkpoint) override;
  void TakeCommunication(StepRecord* record) override;

  void Strike(FaultMoment moment, int64_t step) override { pass_->Strike(moment, step); }
  Certificate& certificate() override { return fragments_->certificate(); }
  Result<std::string> NonFiniteLayer(const std::string& otherwise) override {
    return otherwise;
  }
  Counts counts() const override { return {rounds_, rounds_}; }
  nlohmann::json Policy() const override { return own_ ? own_->Policy() : nullptr; }

  RoundRunner* rounds() override { return this; }
  void LeaveGroup() override;
  Status JoinGroup(const std::vector<double>& weights, bool afresh) override;
  int64_t RoundAfter(int64_t step) const override {
    return machine_->schedule().RoundOf(step + 1) + 1;
  }
  uint64_t reached() const override { return course_->reached(); }
  void Regroup(uint64_t furthest) override;
  std::vector<std::span<float>> SharedState() override { return machine_->SharedState(); }
  void StartFromShared(int64_t step) override;

 private:
  LocalRunner(const TrainOptions& options, const RunnerPlace& place)
      : options_(options),
        comm_(place.comm),
        replica_(place.replica),
        worker_(place.worker),
        workers_(place.workers),
        total_steps_(place.total_steps),
        weights_(place.weights) {}

  // What own codecs are told of beside what they tell each other: the mean loss of a round.
  static constexpr size_t kScalars = 1;

  // A local step that was made, and may have to wait for what follows it.
  struct Made {
    StepRecord record;
    Stopwatch watch;
  };

  Status MakeMachine(const Algorithm& algorithm);
  Status MakeFragments();
  Status AddOwn(FragmentOptions* options);
  std::span<float> own_scalars() { return fragments_->scalars().subspan(kScalars); }
  Status LoadOwn(const Checkpoint& checkpoint);
  Status BeginRound();
  Status EndRound(const StepOutcome& outcome);
  double Share() const;
  Status MakeStep(int64_t step, double learning_rate, TrainLoader& loader);
  Result<StepOutcome> Act();
  Result<StepOutcome> Apply(size_t fragment);
  Status Arrive(size_t fragment);
  void TakeBack(size_t fragment);
  Status SettleMemory(const RoundTask& task);
  LocalSteps::PlaceOf Place();

  const TrainOptions options_;
  Communicator* const comm_;
  Replica* const replica_;
  const int worker_, workers_;
  const int64_t total_steps_;
  std::vector<double> weights_;  // RunnerPlace::weights
  std::vector<ParameterShape> shapes_;
  std::vector<size_t> fragment_of_;  // by parameter
  std::unique_ptr<BackwardPass> pass_;
  std::optional<LocalSteps> machine_;
  std::optional<RoundCourse> course_;
  std::optional<Made> made_;
  std::unique_ptr<OwnCodecs> own_;  // what this worker chooses for itself; may be null
  std::unique_ptr<FragmentReduction> fragments_;
  double losses_ = 0;         // of the steps since the last round, if there are own codecs
  int64_t steps_ = 0;         // their number
  nlohmann::json decisions_;  // about a round that is over and not yet in a record
  // By fragment: what came of an average that has been waited for, but not yet been applied.
  std::vector<std::optional<StepOutcome>> arrived_;
  int64_t bad_rounds_ = 0;  // in a row, whose work was lost
  uint64_t rounds_ = 0;
  // Between LeaveGroup and JoinGroup: what is kept of `fragments_`.
  Sections memory_;
  // By fragment whose round was under way when the group broke, until it is known whether
  // another worker has applied it: what its codecs remember if so.
  std::map<size_t, Sections> if_applied_;
  nlohmann::json certificate_;
  ReducerStats stats_;  // of groups before this one, and not yet in a record
  Traffic counted_;     // in the records so far: messages travel between steps, too
};

}  // namespace elastiquant
