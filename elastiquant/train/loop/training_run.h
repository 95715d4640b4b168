// The run of one worker: what happens at its start, after each step and epoch, and at its end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/data/dataset.h"
#include "elastiquant/data/loader.h"
#include "elastiquant/data/partition.h"
#include "elastiquant/layers/agreement.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/net/crew/crew.h"
#include "elastiquant/protocol/round_course.h"
#include "elastiquant/runs/folder_lock.h"
#include "elastiquant/runs/progress.h"
#include "elastiquant/runs/run_record.h"
#include "elastiquant/train/gradient_dump.h"
#include "elastiquant/train/loop/evaluate.h"
#include "elastiquant/train/loop/reunion.h"
#include "elastiquant/train/loop/run_folder.h"
#include "elastiquant/train/loop/step_pool.h"
#include "elastiquant/train/replica.h"
#include "elastiquant/train/runner.h"
#include "elastiquant/train/schedule.h"
#include "elastiquant/train/summary.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// While it lives, the replica is the model that all workers share.
class SharedModel {
 public:
  explicit SharedModel(Runner* runner) : runner_(runner) { runner_->ShowShared(); }
  ~SharedModel() { runner_->ShowOwn(); }
  SharedModel(const SharedModel&) = delete;
  SharedModel& operator=(const SharedModel&) = delete;

 private:
  Runner* const runner_;
};

// What follows each step, in this order. Each of these is for all workers together, but for the
// step itself, and each is done once, whatever groups the workers are in meanwhile.
enum class Station : uint64_t {
  kStep,
  kRollCall,  // between two rounds: newcomers are taken
  kCheck,     // of replicas
  kEpoch,
  kMuster,  // between two rounds: it is seen whether enough workers are there
  kSave,
  kEnd,
};

// Behind what a runner does after the step.
constexpr uint64_t MilestoneAt(int64_t step, Station station) {
  return MilestoneOf(step, static_cast<uint64_t>(station) << (kSlotBits - 3));
}

class TrainingRun {
 public:
  // `crew` is null if the loss of a worker ends the run.
  TrainingRun(const TrainOptions& options, const RunInfo& info, Communicator* comm, Crew* crew)
      : options_(options),
        info_(info),
        comm_(*comm),
        crew_(crew),
        worker_(crew ? crew->worker() : comm->rank()),
        workers_(crew ? crew->workers() : comm->world_size()),
        agreement_(comm) {}

  // The whole run. libtorch throws: what it says is an error like any other.
  Status Train();
  const Agreement& agreement() const { return agreement_; }

 private:
  bool is_newcomer() const { return crew_ != nullptr && crew_->is_newcomer(); }
  bool is_first() const { return comm_.rank() == 0 && !is_newcomer(); }
  int64_t last_step() const { return state_.step - 1; }
  // Between two rounds workers may come, and the run may end if too few are there.
  bool GroupMayChange() const {
    return crew_ != nullptr && between_rounds_ && state_.step < total_steps_;
  }
  int64_t epoch_of(int64_t step) const { return step / steps_per_epoch_ + 1; }

  // training_run_set_up.cc: what the run trains, on what, and where it begins.
  Status SetUp();
  Status OpenData();
  Status OpenTestData();
  Status DealData();
  std::vector<double> Weights() const;
  Status MakeReplica();
  Status SetUpHere();
  Status OpenFolder();
  Status TakeFolder();
  Status OpenLogs();
  Status MakeTheRunner();
  Status MakeDump();
  nlohmann::json Alike() const;
  Status CheckAllAlike();
  Status ShareStart();
  Status LoadMemory();
  Status LoadCertificate();

  // training_run.cc: what happens in which order.
  Status Run();
  Status RunInGroup();
  Status TrainStep();
  Status TrainStretch();
  int64_t NextMeeting() const;
  Status GiveUp(const StepOutcome& outcome);
  Status FinishStep();
  Status FinishRun();
  bool IsPast(Station station) const;
  Status At(Station station, const std::function<Status()>& work);

  // training_run_group.cc: workers that are lost and come back.
  Status RollCall();
  Status CheckGroup();
  Status Regroup(bool at_boundary);
  Status Rejoin();
  nlohmann::json News() const;
  void TakeIn(const nlohmann::json& news);
  void TakeOver(const nlohmann::json& news);
  Status StartAnew(const Reunion& reunion);
  void TellChanges(const nlohmann::json& news);
  Status ReplaceAbsent();
  int NameOf(int rank) const;
  std::vector<int> NamesOf(const std::vector<int>& ranks) const;
  std::vector<int> Absent() const;

  // training_run_record.cc: evaluations, checkpoints, and what is told of the run.
  Status SaveAll();
  Status ShareBytes();
  Status EndEpoch();
  Status EvaluateOwn();
  Status MeasureEpoch();
  Status Certify(int64_t epoch);
  Status CheckReplicas();
  Status CheckCopies();
  RunFacts Facts() const;
  Status ShareCounts();
  Status Summarise();

  const TrainOptions options_;
  const RunInfo info_;
  Communicator& comm_;
  Crew* const crew_;
  const int worker_, workers_;  // this one's name, and the number of all
  Agreement agreement_;

  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<const Dataset> own_data_;  // what this worker may read of it
  LoaderOptions loading_;
  Shares shares_;  // none if all workers read the whole split
  std::unique_ptr<TrainLoader> loader_;
  std::unique_ptr<TestLoader> test_loader_;
  std::unique_ptr<Replica> replica_;
  std::unique_ptr<GradientDump> dump_;  // worker 0's, if asked for
  std::unique_ptr<Runner> runner_;
  std::unique_ptr<Progress> progress_;
  std::optional<FolderLock> folder_lock_;        // worker 0's
  std::unique_ptr<MetricsLog> log_;              // likewise
  std::unique_ptr<MetricsLog> certificate_log_;  // likewise
  std::unique_ptr<StepPool> pool_;               // if SharesSteps
  RunState state_;
  Runner::Counts counted_;  // in state_
  Schedule schedule_;

  int64_t coordinates_ = 0;
  int64_t steps_per_epoch_ = 1;
  int64_t total_steps_ = 0;
  bool replicas_identical_ = true;

  Station station_ = Station::kStep;  // what is to be done next
  uint64_t furthest_ = 0;             // what some worker of the group has passed already
  bool between_rounds_ = false;
  std::vector<int> group_;         // as this worker has last gone on in one
  bool is_over_ = false;           // the others have finished the run
  nlohmann::json own_accuracies_;  // by worker, of the evaluation that was made last
  Evaluation evaluation_;          // the last one
};

}  // namespace elastiquant
