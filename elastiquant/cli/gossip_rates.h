// Holds the rates that theory gives decentralised training on quadratics
// (theory/quadratic_rate.h) against the algorithms as they run.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/graph/graph.h"

namespace elastiquant::cli {

struct GossipRateOptions {
  std::string graph = "";
  size_t nodes = 8;
  uint64_t seed = 1;
  std::string codec = "";  // measured beside fp32; empty: none
  double curvature = .1;   // eta h, above 0 and below 1
};

// Returns {"graph", "nodes", "curvature", "codec", "rows": [...]}, a row for each algorithm
// that is a recursion of this kind: "algorithm", "step", "rate" and "left" (QuadraticOutcome),
// and "measured_rate", "measured_left" under fp32 and "codec_rate" under the codec; or
// "refused", with the reason. Rates that could not be measured, because differences did not die
// out in 2000 rounds, are null. Fails as Graph::Parse and MakeCodec do, and with
// kInvalidArgument for graphs that change or are not symmetric.
Result<nlohmann::ordered_json> GossipRates(const GossipRateOptions& options);
void PrintGossipRates(const nlohmann::ordered_json& rates);

}  // namespace elastiquant::cli
