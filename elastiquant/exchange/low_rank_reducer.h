// The all-reduce of factors. In place of a bucket whose codec asks for it (Exchange::kFactors)
// two smaller ones cross the network, P and then Q, in the all-reduce of all other buckets.
// Values that have no factors cross it there in a third one.
#pragma once

#include <memory>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// Makes a reducer for buckets of which at least one goes by kFactors. GradientReducer::Create
// calls it, and has checked the buckets.
Result<std::unique_ptr<GradientReducer>> MakeLowRankReducer(Communicator* comm,
                                                            std::vector<GradientBucket> buckets,
                                                            const ReducerOptions& options);

}  // namespace elastiquant
