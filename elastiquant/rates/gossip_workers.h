// The workers of a decentralised run on a small problem, in step with each other.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/protocol/gossip/gossip.h"
#include "elastiquant/rates/gossip_problem.h"

namespace elastiquant::rates {

struct GossipWorkers {
  const GossipProblem& problem;
  std::vector<std::unique_ptr<GossipNode>> nodes = {};

  // All begin at 0. Fails as GossipNode::Make does.
  static Result<GossipWorkers> Make(const GossipProblem& problem, const GossipOptions& options);

  // One round, in which weights move by `kick`, too, if it is given: one worker behind the
  // other. False if weights have left the range of what can be encoded.
  Result<bool> Round(std::span<const float> kick = {});

  // One worker behind the other.
  std::vector<double> Weights() const;
};

double Distance(const std::vector<double>& a, const std::vector<double>& b);

// What was seen of a run: how fast it came to its end, and how far from the optimum that is, if
// it came to rest.
struct GossipMeasured {
  std::optional<double> rate = {};
  std::optional<double> left = {};
  std::vector<double> end = {};  // all weights, or none if they went out of range
};

}  // namespace elastiquant::rates
