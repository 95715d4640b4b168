// Workers that only average: whether they come together under a codec, and how fast.
#pragma once

#include <utility>

#include "elastiquant/base/status.h"
#include "elastiquant/protocol/gossip/gossip.h"

namespace elastiquant {

// Workers whose weights are Gaussian vectors, and that have no gradients. They are as many as
// the graph has nodes, in one thread and without a network. The same options give the same
// results on all machines of one kind.
class GossipTrial {
 public:
  // Takes the algorithm, graph, codec, delay and seed from `options`. Fails as GossipNode::Make
  // and MakeCodec do.
  //
  // A trial takes three times as many rounds as it takes to show neighbours a vector that
  // stands still, and at least 30. A step that is too large swings weights about with a period
  // of about that time: 30 rounds of a random 1 % show a quarter, and would not tell.
  static Result<GossipTrial> Make(GossipOptions options);

  // Returns what a round multiplies the sum of |x_i - mean|^2 by, on average, with this step
  // (gamma), in a trial that is so many times as long. It is infinite if the weights grow until
  // they cannot be encoded any more.
  Result<double> Contraction(double step, int times_as_long = 1) const;

 private:
  GossipTrial(GossipOptions options, int rounds)
      : options_(std::move(options)), rounds_(rounds) {}

  GossipOptions options_;
  int rounds_;
};

}  // namespace elastiquant
