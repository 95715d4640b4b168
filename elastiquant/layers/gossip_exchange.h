// Delivers what the worker of a decentralised run (protocol/gossip) wants delivered: over a
// communicator, one round after the other.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/layers/bucket_plan.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/protocol/gossip/gossip.h"

namespace elastiquant {

// Sets the options' elements and shapes to those of a model with these parameters, which lie
// one behind the other.
void SetModel(const std::vector<ParameterShape>& parameters, GossipOptions* options);

// Not thread-safe. Of AD-PSGD, workers that answer do so on a thread of their own.
class GossipExchange {
 public:
  // Collective. options.rank becomes the communicator's, whose world must have as many workers
  // as the graph has nodes. If options.step is 0, worker 0 searches for one (step_search.h)
  // where the codec loses anything. Fails as GossipNode::Make does.
  static Result<std::unique_ptr<GossipExchange>> Make(Communicator* comm, GossipOptions options,
                                                      std::span<const float> start);
  // If rounds are under way, all peers must have ended as well, or one must have been lost.
  ~GossipExchange();

  // Begins a round: messages that do not depend on its gradient leave.
  Status Begin();
  // Copies the weights at which the next gradient is to be computed.
  void CopyWeights(std::span<float> weights);
  // Takes how far the optimiser has moved them, and returns when the round has ended here.
  // Fails with kUnavailable if a worker was lost.
  Status Finish(std::span<const float> moved);
  // Collective, between two rounds: returns when nothing is under way any more. Must be called
  // before the last weights are read, and before Save.
  Status Pause();

  // Whether others may still count on this worker's answers: until Pause, in AD-PSGD.
  bool is_paused() const { return node_->is_paused(); }

  // What was spent since the last call, and the errors of the frames of this worker.
  ReducerStats TakeStats();
  uint64_t rounds() const { return rounds_; }  // that have ended here since Make
  double step() const { return step_; }        // gamma

  Result<GossipState> Save() { return node_->Save(); }
  Status Load(const GossipState& state) { return node_->Load(state); }

 private:
  GossipExchange(Communicator* comm, std::unique_ptr<GossipNode> node)
      : comm_(comm), node_(std::move(node)) {}

  Status Deliver(const Result<GossipSends>& sends);
  Status FlushSent();
  std::unique_ptr<Incoming> NextIncoming();
  Status TakeOne();
  void Serve();
  Status JoinServer();
  void SayWhomItWaitsFor();

  Communicator* const comm_;
  std::unique_ptr<GossipNode> node_;
  std::vector<std::unique_ptr<Transfer>> sent_;  // not yet waited for
  // Posted, in the order of rounds. A message on its way needs no other to tell its sender that
  // there is room for it, which would cost two more delays of the link.
  std::deque<std::unique_ptr<Incoming>> coming_;
  ReducerStats stats_;
  uint64_t rounds_ = 0;
  double step_ = 1;
  // The thread that answers. The mutex guards node_, sent_ and stats_ while there is one.
  std::mutex mutex_;
  std::thread server_;
  Status server_status_;
};

}  // namespace elastiquant
