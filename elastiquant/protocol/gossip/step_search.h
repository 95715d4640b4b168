// Looks for the step (gamma) with which workers that know only replicas of each other come
// together fastest.
#pragma once

#include <vector>

#include "elastiquant/protocol/gossip/gossip.h"

namespace elastiquant {

struct StepTrial {
  double step = 1;
  // What the sum of |x_i - mean|^2 is multiplied by in a round, on average; above 1 it grows.
  double contraction = 0;
};
struct StepSearch {
  std::vector<StepTrial> trials;  // from large steps to small ones
  double best = 1;                // the step with the least contraction
};

// Returns whether a search is worth while: not if what is shown is exact and comes in its own
// round, as 1 is best then, nor under DCD and ECD, which are published with that step. Fails as
// MakeCodec does.
Result<bool> NeedsStepSearch(const GossipOptions& options);

// Tries steps on Gaussian vectors and without gradients, with the graph, the codec, the delay
// and the seed of `options`, whose algorithm is CHOCO then. It takes about a second, or several
// for codecs that send few coordinates, and gives the same on all workers. Fails as
// GossipNode::Make does.
Result<StepSearch> SearchGossipStep(const GossipOptions& options);

}  // namespace elastiquant
