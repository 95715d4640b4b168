// One worker of a decentralised run: whom it tells what, and how its weights move by what it is
// told. It has no thread, clock or socket: a driver tells it of gradients and messages, and
// sends what it says. Workers meet in *rounds*, by the graph of the round; each may be ahead of
// another by as many rounds as they are apart on it.
//
// The bytes that it sends a neighbour are a compressed difference from what that neighbour
// knows already, the replica, which both ends keep (replicas.h). On a graph that never changes
// all neighbours get the same bytes and there is one replica of this worker's own; otherwise
// there is one for each edge, in each direction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/graph/graph.h"
#include "elastiquant/protocol/gossip/message.h"
#include "elastiquant/protocol/gossip/replicas.h"
#include "elastiquant/protocol/gossip/rules.h"
#include "elastiquant/protocol/gossip/state.h"

namespace elastiquant {

struct GossipOptions {
  GossipKind kind = GossipKind::kChoco;
  int rank = 0;
  std::shared_ptr<const Graph> graph = nullptr;
  size_t elements = 0;                   // of the weights, at least 1
  std::string codec = "fp32";            // of what is shown
  std::vector<TensorShape> shapes = {};  // of the tensors that the weights consist of, or empty
  uint64_t seed = 0;                     // of the codec's random numbers, the same on all
  int threads = 1;                       // the codec's
  double step = 1;  // gamma: how far weights follow what is shown, in (0, 1]
  // 1: a round waits for the messages of the round before it, which travel while the gradient
  // is computed. Of CHOCO only.
  int64_t delay = 0;
  double outer_rate = .7, outer_momentum = .3;  // of NoLoCo
};

// A message that the driver must deliver. The bytes are valid until the next call that is not
// const.
struct GossipSend {
  int to = 0;
  std::span<const uint8_t> bytes;
};
using GossipSends = std::vector<GossipSend>;

class GossipNode {
 public:
  virtual ~GossipNode() = default;

  // Makes a worker whose weights are `start`, which must be the same on all workers. Fails with
  // kInvalidArgument for options out of range, for an algorithm that the graph does not suit
  // (the message says what does), and as EdgeOf does.
  static Result<std::unique_ptr<GossipNode>> Make(const GossipOptions& options,
                                                  std::span<const float> start);
  // Fails as Make does for these options and any model.
  static Status Check(GossipOptions options);

  virtual uint64_t round() const = 0;  // the one that is under way, from 0
  // Where the next gradient is to be computed. Valid until the round ends.
  virtual std::span<const float> weights() const = 0;
  virtual size_t MaxMessageBytes() const = 0;

  // Must be called at the beginning of a round, before its gradient is computed.
  virtual Result<GossipSends> OnRound() = 0;
  // Takes how far this worker's optimiser moves weights() in the round, once in each round.
  // Fails with kNonFinite where the codec does.
  virtual Result<GossipSends> OnMoved(std::span<const float> moved) = 0;
  // Takes a message. Fails with kCorruptData, and has changed nothing, for bytes that are no
  // such message of that worker: a second one of a round, too.
  virtual Result<GossipSends> OnMessage(int from, std::span<const uint8_t> bytes) = 0;

  // Whether OnMoved was called and the round has not ended: it ends by messages.
  virtual bool is_waiting() const = 0;
  // Whether messages of rounds that have ended are still to come.
  virtual bool is_owed() const = 0;
  // Those whose message of a round is still to come, so that the driver can be ready for it.
  // Empty for pairs, which nobody can foresee.
  virtual std::vector<int> MissingIn(uint64_t round) const = 0;
  // Those that get a message of this worker in a round. Empty for pairs.
  virtual std::vector<int> ReceiversIn(uint64_t round) const = 0;
  // The peers whose messages are missing, while it waits or is owed.
  virtual std::vector<int> WaitsFor() const = 0;

  // Before workers meet otherwise, as to be evaluated, those who ask in pairs (pairwise.h) say
  // that they pause, and those who answer serve until all have said so; then these are told
  // that they pause, too. It has no effect until a round has begun.
  virtual GossipSends OnPause() { return {}; }
  virtual bool is_serving() const { return false; }
  virtual bool is_paused() const { return true; }

  // The peer takes no part in rounds from `round` on: its weight goes back to the diagonal.
  // That round must not have ended here; FirstWithout says which one it is for a peer that is
  // lost. The round that is under way may end by it.
  virtual Result<GossipSends> Drop(int peer, uint64_t round) = 0;
  // The peer begins anew in `round`, which must not have begun here, at these weights: as one
  // that was dropped and is back, or that was there all the time. That it has shown them is all
  // that both ends of its edges know, and so is the other way round, unless this worker shows
  // all neighbours the same: then the peer has to be given ReplicaAt. Fails with
  // kInvalidArgument for algorithms whose workers remember more of each other.
  virtual Status Admit(int peer, uint64_t round, std::span<const float> weights) = 0;
  // Returns the number after that of the latest round of which a message of this peer has come,
  // or 0 if none has. Of AD-PSGD, how many averages the pair has made.
  virtual uint64_t RoundsFrom(int peer) const = 0;
  // Returns the first round that has neither ended here nor had a message of this peer. Where
  // neighbours differ in it, each has counted what it has had: the others keep their weights.
  uint64_t FirstWithout(int peer) const;

  // What `peer` has shown this worker, and what this worker has shown it, as both ends know it;
  // empty if there is no such replica. The stream is below the number that the rule shows.
  virtual std::span<const float> ReplicaOf(int peer, size_t stream) const = 0;
  virtual std::span<const float> ReplicaAt(int peer, size_t stream) const = 0;

  // Whether what it has shown each receiver is kept here as that receiver must have it: not
  // where it shows all the same and they have it of different rounds, as a codec that loses
  // nothing does on a graph that changes.
  virtual bool has_replicas() const = 0;
  // Return hashes of all that `peer` has shown this worker, and of all that this worker has
  // shown it: between two rounds with nothing owed, the one on a worker is the other one on its
  // peer. Where nothing has been shown yet it is that of what both begin at.
  uint64_t HashOf(int peer) const;
  uint64_t HashAt(int peer) const;

  // Returns the errors since the last call.
  virtual GossipErrors TakeErrors() = 0;

  // Save between rounds, when nothing is owed. Load fails with kInvalidArgument, and changes
  // nothing, for a state of another algorithm, graph or size.
  virtual Result<GossipState> Save() = 0;
  virtual Status Load(const GossipState& state) = 0;

 private:
  virtual size_t streams() const = 0;
  virtual std::span<const float> start() const = 0;  // what all began at
  uint64_t HashOfShown(const std::function<std::span<const float>(size_t)>& replica) const;
};

// Fails with kUnavailable if workers of this kind cannot go on when of the graph's nodes only
// these are left, and says why: sgp, where one of them gives to others from which no way leads
// back. These would end with all the weight of push-sum, and the others with none: with models
// that are 0 / 0.
Status CheckThoseLeft(GossipKind kind, const Graph& graph, const std::vector<int>& left);

// Returns what the edges of a worker with these options have in common. Fails as MakeCodec
// does, and as CheckGossipFrame does for a codec that loses nothing.
Result<EdgeOptions> EdgeOf(const GossipOptions& options);

}  // namespace elastiquant
