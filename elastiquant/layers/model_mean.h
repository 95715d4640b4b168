// The mean of models that differ from worker to worker. What is sent for it is not counted as
// traffic, as it is for evaluations and for the end of a run.
#pragma once

#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

struct ModelMean {
  std::vector<float> values;
  double distance = 0;  // the root of the mean over workers of |x_i - mean|^2
};

// Collective; all give as many values. The sum is taken in the order of ranks, so that all
// workers have the same bits.
Result<ModelMean> MeanOfModels(Communicator* comm, std::span<const float> own);

}  // namespace elastiquant
