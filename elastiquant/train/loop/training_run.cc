#include "elastiquant/train/loop/training_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "elastiquant/c10d/torch_error.h"

namespace elastiquant {

Status TrainingRun::Train() try {
  EQ_RETURN_IF_ERROR(SetUp());
  return Run();
} catch (const std::exception& error) {
  return Internal(Words(error));
}

Status TrainingRun::Run() {
  while (!is_over_) {
    const Status status = RunInGroup();
    const bool may_go_on = crew_ != nullptr && crew_->is_broken();
    if (!may_go_on || status.code() != StatusCode::kUnavailable) return status;
    EQ_RETURN_IF_ERROR(Regroup(/*at_boundary=*/false));
  }
  return Status::Ok();
}

// From wherever this worker stands to the end of the run, if no worker is lost.
Status TrainingRun::RunInGroup() {
  const int64_t& step = state_.step;
  const int64_t first = step;
  while (!is_over_ && (step < total_steps_ || station_ != Station::kStep)) {
    if (station_ == Station::kStep) {
      if (step % steps_per_epoch_ == 0 || step == first) {
        EQ_RETURN_IF_ERROR(runner_->BeginEpoch(epoch_of(step)));
      }
      EQ_RETURN_IF_ERROR(pool_ ? TrainStretch() : TrainStep());
      station_ = Station::kRollCall;
    }
    EQ_RETURN_IF_ERROR(FinishStep());
  }
  return is_over_ ? Status::Ok() : FinishRun();
}

Status TrainingRun::FinishStep() {
  const int64_t& step = state_.step;  // who comes back may find itself at another one
  if (GroupMayChange()) {
    EQ_RETURN_IF_ERROR(At(Station::kRollCall, [this] { return RollCall(); }));
    if (is_over_) return Status::Ok();
  }
  if (options_.check_replicas == "every") {
    EQ_RETURN_IF_ERROR(At(Station::kCheck, [this] { return CheckReplicas(); }));
  }
  if (step % steps_per_epoch_ == 0 || step == total_steps_) {
    if (station_ <= Station::kEpoch) EQ_RETURN_IF_ERROR(EndEpoch());
  }
  if (GroupMayChange()) {
    EQ_RETURN_IF_ERROR(At(Station::kMuster, [this] { return CheckGroup(); }));
  }
  if (options_.checkpoint_every > 0 &&
      (step % options_.checkpoint_every == 0 || step == total_steps_)) {
    EQ_RETURN_IF_ERROR(At(Station::kSave, [this] { return SaveAll(); }));
  }
  station_ = Station::kStep;
  return Status::Ok();
}

Status TrainingRun::FinishRun() {
  EQ_RETURN_IF_ERROR(CheckReplicas());
  {
    const SharedModel shared(runner_.get());
    // Where a finished run is resumed, nobody has evaluated the model of all.
    if (!runner_->has_replicas()) EQ_RETURN_IF_ERROR(runner_->ShareBuffers());
    EQ_RETURN_IF_ERROR(Summarise());
  }
  EQ_RETURN_IF_ERROR(comm_.Barrier());         // nobody leaves while others still work
  if (crew_) (void)crew_->End(/*well=*/true);  // there is nothing more to be lost
  runner_->Strike(FaultMoment::kEnd, last_step());
  return Status::Ok();
}

// Whether another worker of the group has been there with those that were lost.
bool TrainingRun::IsPast(Station station) const {
  return MilestoneAt(state_.step, station) < furthest_;
}

// Does the work of a station, if it is yet to be done.
Status TrainingRun::At(Station station, const std::function<Status()>& work) {
  if (station_ > station) return Status::Ok();
  station_ = station;
  if (!IsPast(station)) EQ_RETURN_IF_ERROR(work());
  station_ = static_cast<Station>(static_cast<uint64_t>(station) + 1);
  return Status::Ok();
}

Status TrainingRun::TrainStep() {
  if (crew_) EQ_RETURN_IF_ERROR(crew_->Check());
  const bool last_chance = state_.skipped_in_a_row + 1 >= options_.max_skipped;
  EQ_ASSIGN_OR_RETURN(
      StepResult result,
      runner_->Run(state_.step, LearningRate(schedule_, state_.step), last_chance, *loader_));
  result.record.epoch = epoch_of(state_.step);
  if (pool_) {  // of the run, and not of this worker, which makes more of them or fewer
    result.record.step = state_.step + 1;
    result.record.images = options_.batch * static_cast<int64_t>(pool_->taken_since());
  }
  ++state_.step;
  between_rounds_ = result.ends_round;
  state_.record.AddStep(result.record);
  // One that was frozen may be the first no more, and learns of it before the next step.
  if (is_first() && (crew_ == nullptr || crew_->Check().ok())) {
    progress_->Step(result.record);
    EQ_RETURN_IF_ERROR(log_->Write(result.record));
  }
  if (!result.outcome.skipped) {
    state_.skipped_in_a_row = 0;
    return Status::Ok();
  }
  if (is_first()) {
    progress_->Note(fmt::format("step {} was skipped: {}", state_.step, result.outcome.reason));
  }
  return ++state_.skipped_in_a_row < options_.max_skipped ? Status::Ok()
                                                          : GiveUp(result.outcome);
}

// The step after which all workers meet next, for an evaluation or a checkpoint.
int64_t TrainingRun::NextMeeting() const {
  const auto next = [&](int64_t every) { return (state_.step / every + 1) * every; };
  int64_t meeting = std::min(total_steps_, next(steps_per_epoch_));
  if (options_.checkpoint_every > 0)
    meeting = std::min(meeting, next(options_.checkpoint_every));
  return meeting;
}

// Steps of this worker until all together have made those of the run up to the next meeting.
Status TrainingRun::TrainStretch() {
  const int64_t meeting = NextMeeting();
  EQ_RETURN_IF_ERROR(runner_->BeginStretch());
  while (true) {
    EQ_ASSIGN_OR_RETURN(state_.step, pool_->Next());
    if (state_.step >= meeting) break;
    pool_->Take();
    EQ_RETURN_IF_ERROR(TrainStep());
  }
  state_.step = meeting;
  if (meeting < total_steps_) return Status::Ok();
  pool_.reset();
  return runner_->EndStretches();
}

Status TrainingRun::GiveUp(const StepOutcome& outcome) {
  EQ_ASSIGN_OR_RETURN(const std::string where, runner_->NonFiniteLayer(outcome.reason));
  return agreement_.Known(NonFinite(
      fmt::format("gave up at step {} after {} skipped steps in a row: {}. A lower --lr "
                  "or a --warmup may help; --max-skipped sets how many are allowed",
                  state_.step, state_.skipped_in_a_row, where)));
}

}  // namespace elastiquant
