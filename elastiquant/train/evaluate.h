// Measures the model's accuracy and loss on the test set.
#pragma once

#include <limits>

#include "elastiquant/base/status.h"
#include "elastiquant/data/loader.h"
#include "elastiquant/layers/agreement.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/train/replica.h"

namespace elastiquant {

struct Evaluation {
  double accuracy = std::numeric_limits<double>::quiet_NaN();  // per cent
  double loss = std::numeric_limits<double>::quiet_NaN();
};

// Collective. Each worker takes its share of the test set, and the sums are taken in the
// workers' order. All must have the same parameters and buffers.
Result<Evaluation> Evaluate(Replica& replica, TestLoader& loader, Communicator& comm,
                            Agreement& agreement);

}  // namespace elastiquant
