// AD-PSGD: workers that wait for nobody but the one they average with (Lian et al.,
// "Asynchronous Decentralized Parallel Stochastic Gradient Descent", ICML 2018).
//
// The graph is bipartite. The workers of one side ask: with the gradient of a step ready, such
// a worker picks a neighbour at random, both move to the mean of their weights, and then it
// moves by its gradient, which it has computed at weights from before. Those of the other side
// answer at any time, also while they compute, and move by their own gradients when these are
// ready. Nobody who has asked answers before it has the answer, so that averages are atomic;
// and since no two who ask wait for each other, nobody waits for ever.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "elastiquant/protocol/gossip/gossip.h"

namespace elastiquant {

class GossipPairs final : public GossipNode {
 public:
  // Fails with kInvalidArgument unless the graph is static and bipartite.
  static Result<std::unique_ptr<GossipNode>> Make(const GossipOptions& options,
                                                  std::span<const float> start);

  uint64_t round() const override { return round_; }
  // Of one who answers, they may change with each message.
  std::span<const float> weights() const override { return x_; }
  size_t MaxMessageBytes() const override;

  Result<GossipSends> OnRound() override;
  Result<GossipSends> OnMoved(std::span<const float> moved) override;
  Result<GossipSends> OnMessage(int from, std::span<const uint8_t> bytes) override;

  bool is_waiting() const override { return asked_ >= 0; }
  bool is_owed() const override { return false; }
  std::vector<int> MissingIn(uint64_t /*round*/) const override { return {}; }
  std::vector<int> ReceiversIn(uint64_t /*round*/) const override { return {}; }
  std::vector<int> WaitsFor() const override;

  GossipSends OnPause() override;
  bool is_paused() const override { return is_paused_; }
  // Of one who answers: until all who may ask have paused.
  bool is_serving() const override { return !asks_ && !asking_.empty(); }

  Result<GossipSends> Drop(int peer, uint64_t round) override;
  Status Admit(int peer, uint64_t round, std::span<const float> weights) override;
  uint64_t RoundsFrom(int peer) const override;

  std::span<const float> ReplicaOf(int peer, size_t stream) const override;
  std::span<const float> ReplicaAt(int peer, size_t stream) const override;

  bool has_replicas() const override { return true; }

  GossipErrors TakeErrors() override { return std::exchange(errors_, {}); }

  Result<GossipState> Save() override;
  Status Load(const GossipState& state) override;

 private:
  struct Edge {
    Outlet outlet;
    Inlet inlet;
    uint64_t averages = 0;  // so far: numbers the messages of both
    bool is_present = true;
  };

  GossipPairs(const GossipOptions& options, EdgeOptions edge, bool asks,
              std::span<const float> start);

  size_t streams() const override { return 1; }
  std::span<const float> start() const override { return start_; }

  int Pick() const;
  StreamKey KeyOf(const Edge& edge, int from, int to) const;
  Status Write(int peer, GossipPart part);
  Result<Decoded> Read(int from, const GossipMessage& message);
  void Average(int peer, Decoded theirs);
  void Move();

  GossipOptions options_;
  EdgeOptions edge_options_;
  bool asks_;
  std::unique_ptr<GossipScratch> scratch_;
  std::vector<float> start_, x_, moved_;
  std::map<int, Edge> edges_;
  bool is_paused_ = true;       // until the next round begins
  std::map<int, bool> asking_;  // those who have not said that they pause since then
  uint64_t round_ = 0;
  int asked_ = -1;  // whose answer is waited for
  std::vector<uint8_t> message_;
  GossipErrors errors_;
};

}  // namespace elastiquant
