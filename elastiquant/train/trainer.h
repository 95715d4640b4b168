// The training loop of one worker.
#pragma once

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/train/summary.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// Trains as one of the workers that `where` names, and writes (as worker 0) metrics.jsonl,
// certificate.jsonl, summary.json and checkpoints to options.out. `options` must have passed
// ValidateOptions. An error with an empty message is one that another worker explains.
Status TrainAsWorker(const TrainOptions& options, const CommunicatorOptions& where,
                     const RunInfo& info);

}  // namespace elastiquant
