// What an algorithm needs of a run's other options, and what to give instead.
#pragma once

#include "elastiquant/base/status.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {

// Fails with InvalidArgument if the algorithm is not known, or if it cannot do what the other
// options ask of it: rounds, fragments, codecs, the graph, samples, ratios, bits that change,
// and going on without lost workers.
Status ValidateAlgorithm(const TrainOptions& options);

}  // namespace elastiquant
