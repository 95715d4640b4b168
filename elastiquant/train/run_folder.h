// A run's folder: what an earlier run left there, and the checkpoints of this one.
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

// How far a run is.
struct RunState {
  int64_t step = 0;  // done
  int64_t skipped_in_a_row = 0;
  std::string codec;  // StepRunner::AdaptedCodec
  std::string init;  // LoadInitialWeights: what the run's first weights were; empty: the seed's
  RunRecord record;
  nlohmann::json certificate;  // Certificate::SaveState, of an epoch under way
};

inline constexpr char kGradientFolder[] = "gradients";  // of GradientDump

// Makes options.out; unless the run is to be resumed, takes away what belongs to an earlier
// one. Errors: IoError; InvalidArgument if there are checkpoints and neither --resume nor
// --overwrite.
Status PrepareRunFolder(const TrainOptions& options);

// Goes on from the newest good checkpoint, or from the start if there is none. Errors: those of
// LoadNewestCheckpoint; InvalidArgument naming the options that differ from the run's.
Status LoadRun(const TrainOptions& options, int world_size, Replica* replica, RunState* state,
               Progress* progress);

// Errors: those of SaveCheckpoint.
Status SaveRun(const TrainOptions& options, int world_size, const Replica& replica,
               RunState* state);

// What belongs to worker `mine` alone, beside the run's checkpoint of state.step. On resuming
// its identity tells whose it is, and the weights' hash whether it goes with them.
Status SaveWorker(const TrainOptions& options, const StateIdentity& mine, int64_t step,
                  const Replica& replica, Checkpoint checkpoint);
// Errors: NotFound if it is missing, CorruptData if it is damaged, another worker's or of
// another run, each with the file and what to do.
Result<Checkpoint> LoadWorker(const TrainOptions& options, const StateIdentity& mine,
                              int64_t step, const Replica& replica);

}  // namespace elastiquant
