// Holds the rates that theory gives decentralised training (theory/linear_gossip.h) against the
// algorithms as they run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/graph/graph.h"

namespace elastiquant::rates {

struct GossipRateOptions {
  std::string graph = "";
  size_t nodes = 8;
  uint64_t seed = 1;
  std::string codec = "";              // measured beside fp32; empty: none
  std::string problem = "quadratics";  // or "logistic" (gossip_problem.h)
  double curvature = .1;               // the learning rate times it, above 0 and below 1
};

// Returns {"graph", "nodes", "problem", "curvature", "codec", "unit", "rows": [...]}, a row for
// each algorithm: "algorithm", "step", and by theory "rate" (what distances are multiplied by
// in a round) and "left" (in the end, as a part of what "unit" says), and "measured_rate",
// "measured_left" under fp32 and "codec_rate" under the codec; or "refused", with the reason.
// What could not be measured is null: a rate if distances did not die out in 2000 rounds, and
// what is left if weights still moved then.
// The last row is AD-PSGD's, whose pairs meet at random: its numbers are roots of mean squares,
// of all weights, for workers that are equally fast, and without the codec. Fails as
// Graph::Parse, MakeGossipProblem and MakeCodec do, and with kInvalidArgument for graphs that
// do not repeat within 64 rounds.
Result<nlohmann::ordered_json> GossipRates(const GossipRateOptions& options);

}  // namespace elastiquant::rates
