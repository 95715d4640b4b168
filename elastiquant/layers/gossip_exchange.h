// Delivers what the worker of a decentralised run (protocol/gossip) wants delivered: over a
// communicator, one round after the other.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
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

// Collective, where ranks are the nodes of the graph. Fails with kInvalidArgument, on all
// alike, unless all have the same graph, and names those whose graph is not worker 0's.
Status CheckSameGraph(Communicator* comm, const Graph& graph);

// Not thread-safe. Of AD-PSGD, workers that answer do so on a thread of their own. (Groups that
// change are in gossip_group.cc, and the comparison of replicas in gossip_replicas.cc.)
class GossipExchange {
 public:
  // Collective. options.rank becomes the communicator's, whose world must have as many workers
  // as the graph has nodes. If options.step is 0, worker 0 searches for one (step_search.h)
  // where the codec loses anything or messages count late. Fails as GossipNode::Make does.
  static Result<std::unique_ptr<GossipExchange>> Make(Communicator* comm, GossipOptions options,
                                                      std::span<const float> start);
  // A worker that takes no part yet: Join and Admit must follow. options.rank is its node.
  static std::unique_ptr<GossipExchange> MakeNewcomer(Communicator* comm,
                                                      GossipOptions options);
  // If rounds are under way, all peers must have ended as well, or one must have been lost.
  ~GossipExchange();

  // Begin and Finish that fail because a worker was lost may be called again in another group,
  // and go on where they were.

  // Begins a round: messages that do not depend on its gradient leave.
  Status Begin();
  // Copies the weights at which the next gradient is to be computed.
  void CopyWeights(std::span<float> weights);
  // Takes how far the optimiser has moved them, and returns when the round has ended here.
  // Fails with kUnavailable if a worker was lost.
  Status Finish(std::span<const float> moved);
  // Of AD-PSGD, where workers may have begun different numbers of rounds since the last pause:
  // one that has begun none takes part in the pause that follows, too, and answers until then.
  Status Open();
  // Collective, between two rounds, after the same one on all workers (but in AD-PSGD): returns
  // when nothing is under way any more. Must be called before the last weights are read, and
  // before Save. Workers that are in a round, and wait for one that pauses, fail with
  // kUnavailable and are told what that one has done, in words that follow "it has".
  Status Pause(std::string_view done = "paused");
  // Between two rounds: takes what its neighbours have sent in rounds that have ended here, and
  // tells them nothing. It is all that Save needs, but in AD-PSGD, which needs a pause.
  Status TakeOwed();

  // Collective, between two rounds, after Pause. Compares what each worker has shown its
  // neighbours with what these have of it, by hashes, of which one gather is enough if all are
  // the same. Returns an empty text then, and otherwise the edges on which they differ, in
  // words that are the same on all workers. Fails with kUnavailable if a worker was lost.
  Result<std::string> OddReplicas();
  // For tests: changes the last bit of one value of what a neighbour has shown this worker.
  Status Drift();

  // For a group that goes on without those it has lost (net/crew/crew.h). Keeps messages from
  // here on, so that they can be sent again.
  void KeepMessages();
  // Ends what is under way on the communicator, which has failed or is to become another one.
  void Leave();
  // Fails as the function of protocol/gossip does, on all workers of a group alike.
  Status CheckThoseLeft(const std::vector<int>& nodes) const {
    return elastiquant::CheckThoseLeft(options_.kind, *options_.graph, nodes);
  }
  // Collective, on a communicator that has changed. `nodes` are the nodes of the graph that its
  // workers are, by rank, and `newcomers` those of them that know nothing of the others yet.
  // Nodes that are not among them, or that are newcomers, are dropped; the others get again
  // what has not come to them.
  Status Join(const std::vector<int>& nodes, const std::vector<int>& newcomers);
  // Collective, after Join, between two rounds of the others and with nothing owed to them:
  // newcomers begin at `weights`, the same on all workers, in the round that the others are in.
  Status Admit(const std::vector<int>& newcomers, std::span<const float> weights);

  // Whether others may still count on this worker's answers: until Pause, in AD-PSGD.
  bool is_paused() const { return !node_ || node_->is_paused(); }

  // What was spent since the last call, and the errors of the frames of this worker. A step
  // waits for messages to come, and for those of earlier rounds to leave.
  ReducerStats TakeStats();
  uint64_t rounds() const { return rounds_; }  // that have ended here since Make
  double step() const { return step_; }        // gamma
  // Between two rounds, and after Pause in AD-PSGD: the one that comes next, from 0, counted in
  // earlier runs too.
  uint64_t next_round() const { return node_->round(); }

  Result<GossipState> Save() { return node_->Save(); }
  Status Load(const GossipState& state);

 private:
  static constexpr uint32_t kGossipTag = 7;

  // What has passed between this worker and another one, in numbers of messages, and the last
  // ones that were sent.
  struct Peer {
    uint64_t sent = 0, taken = 0;
    std::deque<std::vector<uint8_t>> kept = {};
  };

  GossipExchange(Communicator* comm, GossipOptions options, std::unique_ptr<GossipNode> node);

  int RankOf(int node) const;
  int NodeAt(int rank) const { return nodes_[static_cast<size_t>(rank)]; }

  // Rounds.
  Status Deliver(const Result<GossipSends>& sends);
  void Keep(const GossipSend& send);
  Status FlushSent();
  uint64_t RoundsAhead(uint64_t round) const;
  void PostReceivesUntil(uint64_t round);
  Status SettleAhead(std::string_view done);
  std::unique_ptr<Incoming> NextIncoming();
  Status TakeOne();
  void Serve();
  Status JoinServer();
  Status EndRounds(std::string_view done);
  void SayWhomItWaitsFor();

  // Replicas.
  bool TakesFrom(int node) const;
  bool GivesTo(int node) const;
  uint64_t Difference() const;
  Result<int> FindOddReceiver(int sender);

  // Groups that change.
  Result<std::map<int, uint64_t>> TakenByOthers();
  Status DropLost(const std::vector<int>& newcomers);
  Status SendAgain(int node, uint64_t taken);
  bool ShowsAllTheSame() const;
  Status SendReplicas(const std::vector<int>& newcomers);
  Status BeginAt(uint64_t round, double step, const std::vector<int>& newcomers,
                 std::span<const float> weights);

  Communicator* const comm_;
  GossipOptions options_;
  std::unique_ptr<GossipNode> node_;
  std::vector<int> nodes_;  // by rank
  // Those of the last group that this worker has joined. More than one group may break before
  // all have joined it, and each may have lost others.
  std::vector<int> joined_;
  std::map<int, Peer> peers_;  // by node
  bool keeps_ = false;
  uint64_t posted_ = 0;      // rounds whose receives have been posted
  uint64_t ahead_from_ = 0;  // the round from which receives are posted ahead
  uint64_t begun_ = 0;       // rounds that have begun here
  bool has_moved_ = false;   // whether Finish has been called in this round
  std::vector<std::unique_ptr<Transfer>> sent_;  // not yet waited for
  // Posted, in the order of rounds, for the round under way and some after it. A message leaves
  // only once its sender has heard that there is room for it, which takes a delay of the link:
  // here it hears so a round earlier.
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
