// The all-reduce of factors: of a bucket whose codec asks for it (Exchange::kFactors), two
// smaller ones cross the network, one after the other, in the all-reduce of all other buckets.
#pragma once

#include <memory>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// For buckets of which at least one asks for it. Called by GradientReducer::Create, which has
// checked them.
Result<std::unique_ptr<GradientReducer>> MakeLowRankReducer(Communicator* comm,
                                                            std::vector<GradientBucket> buckets,
                                                            const ReducerOptions& options);

}  // namespace elastiquant
