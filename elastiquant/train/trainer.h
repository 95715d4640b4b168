// The training loop of one worker.
#pragma once

#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/collective/communicator.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// For summary.json.
struct RunInfo {
  std::string command_line;
  std::string version;   // of this program
  int workers_here = 1;  // on this machine: they share its cores
};

// Trains as one of the workers that `where` names, and writes (as worker 0) metrics.jsonl,
// summary.json and checkpoints to options.out. options must have passed ValidateOptions.
// An error with an empty message is one that another worker explains.
Status TrainAsWorker(const TrainOptions& options, const CommunicatorOptions& where,
                     const RunInfo& info);

}  // namespace elastiquant
