// Holds what theory says of AD-PSGD, whose pairs meet at random (theory/pair_gossip.h), against
// the algorithm as it runs.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>

#include "elastiquant/base/status.h"
#include "elastiquant/graph/graph.h"
#include "elastiquant/rates/gossip_problem.h"

namespace elastiquant::rates {

// Returns a row of GossipRates (gossip_rates.h).
Result<nlohmann::ordered_json> PairRates(const std::shared_ptr<const Graph>& graph,
                                         const GossipProblem& problem, uint64_t seed);

}  // namespace elastiquant::rates
