// Measures the model's accuracy and loss on the test set.
#pragma once

#include <limits>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/data/loader.h"
#include "elastiquant/layers/agreement.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/train/replica.h"

namespace elastiquant {

struct Evaluation {
  double accuracy = std::numeric_limits<double>::quiet_NaN();  // per cent
  double loss = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> by_worker = {};  // the accuracy on each worker's share of the test set
};

// Collective. Each worker takes its share of the test set, and the sums are taken in the
// workers' order. If not all have the same parameters and buffers, it is that of each worker's
// own model on its own share.
Result<Evaluation> Evaluate(Replica& replica, TestLoader& loader, Communicator& comm,
                            Agreement& agreement);

}  // namespace elastiquant
