// A run's folder, which holds what an earlier run left there, and the checkpoints of this one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/layers/state_identity.h"
#include "elastiquant/runs/checkpoint.h"
#include "elastiquant/runs/progress.h"
#include "elastiquant/runs/run_record.h"
#include "elastiquant/train/replica.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// How far a run has come.
struct RunState {
  int64_t step = 0;  // the steps that are done
  int64_t skipped_in_a_row = 0;
  std::string codec;  // Runner::AdaptedCodec
  std::string init;   // text of LoadInitialWeights; empty: the first weights are the seed's
  std::string edges;  // text of DescribeEdges
  // How many the training set has. The steps of an epoch, and which samples a step has, follow
  // from it, so that a run does not go on with another number.
  int64_t samples = 0;
  // What Runner::counts told until the run was resumed: of one worker, and by worker.
  uint64_t rounds = 0;
  std::vector<uint64_t> uploads;
  RunRecord record;
  nlohmann::json certificate;  // Certificate::SaveState of an epoch under way
  // With --on-loss go-on: the summary's `losses`, and who was not there when the checkpoint
  // that the run was resumed from was saved.
  nlohmann::json losses = nlohmann::json::array();
  std::vector<int> absent;
};

inline constexpr char kGradientFolder[] = "gradients";  // of GradientDump

// Makes options.out. Leaves what an earlier run has left there. Fails with IoError, and with
// InvalidArgument if there are checkpoints, or a run that has ended, and neither --resume nor
// --overwrite.
Status MakeRunFolder(const TrainOptions& options);
// Takes away what belongs to an earlier run. Must be called once nothing is left that can keep
// the new one from starting.
void ClearRunFolder(const TrainOptions& options);

// Loads the newest good checkpoint, or leaves everything at its start if there is none. Fails
// as LoadNewestCheckpoint does, with CorruptData if the checkpoint is not one of a run, and
// with InvalidArgument, which names the options that differ from the run's.
Status LoadRun(const TrainOptions& options, int world_size, Replica* replica, RunState* state,
               Progress* progress);

// Saves the run's checkpoint of state->step. Fails as SaveCheckpoint does.
Status SaveRun(const TrainOptions& options, int world_size, const Replica& replica,
               RunState* state);

// Saves what belongs to worker `mine` alone, beside the run's checkpoint of `step`. On resuming
// its identity tells whose it is, and the weights' hash whether it goes with them.
Status SaveWorker(const TrainOptions& options, const StateIdentity& mine, int64_t step,
                  const Replica& replica, Checkpoint checkpoint);
// Loads what SaveWorker saved. Fails with NotFound if it is missing, and with CorruptData if it
// is damaged, another worker's or of another run. Each error has the file or folder and says
// what to do.
Result<Checkpoint> LoadWorker(const TrainOptions& options, const StateIdentity& mine,
                              int64_t step, const Replica& replica);

}  // namespace elastiquant
