// The engine behind elastiquant.Gossip in PyTorch: one worker of a decentralised run, over
// connections of its own, between the steps of an optimiser that is not ours.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/ddp/ddp_stats.h"
#include "elastiquant/ddp/enduring_group.h"
#include "elastiquant/graph/graph.h"
#include "elastiquant/graph/parts.h"
#include "elastiquant/layers/gossip_exchange.h"
#include "elastiquant/layers/state_identity.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// One thread at a time may use it.
class GossipEngine {
 public:
  // Destroys the group, for which the worker that hosts the store waits for the others.
  using End = std::function<void(std::unique_ptr<EnduringGroup>)>;

  // Collective. `start` are the weights, the same on all workers, as dense floats of the host;
  // options.elements and shapes are found from `shapes`. If it goes on, lost workers end
  // nothing here from now on: the algorithm must be one that can lose them (CanLoseWorkers).
  // Fails as Communicator::Connect and GossipExchange::Make do.
  static Result<std::unique_ptr<GossipEngine>> Create(
      CommunicatorOptions communicator, bool goes_on, std::vector<ParameterShape> shapes,
      GossipOptions options, std::span<const at::Tensor> start, End end);
  ~GossipEngine();
  GossipEngine(const GossipEngine&) = delete;
  GossipEngine& operator=(const GossipEngine&) = delete;

  // Begins a round; it does nothing if one has begun. Messages that do not depend on its
  // gradient leave. If tensors are given, they become what AD-PSGD has made of the weights
  // since the last round; what else has moved them since then stays on top, and counts as
  // moved in Finish.
  Status Begin(std::span<const at::Tensor> weights);
  // Takes the weights as the optimiser has moved them, and returns when the round has ended
  // here, with the weights as they are then. Weights that are not finite are taken for ones
  // that have not moved: *moved tells.
  Status Finish(std::span<const at::Tensor> weights, bool* moved);
  // Collective, between two rounds, of which workers may have made different numbers in
  // AD-PSGD: returns when nothing is under way any more. The weights, which the optimiser may
  // have moved since the last round, become what AD-PSGD has made of them meanwhile.
  Status Pause(std::span<const at::Tensor> weights);
  // Collective, after Pause: returns what GossipExchange::OddReplicas does.
  Result<std::string> OddReplicas();

  // Collective: dense floats of the host become their mean over all workers. Returns the root
  // of the mean of the squared distances from it.
  Result<double> Average(std::span<const at::Tensor> tensors);

  double step() const { return step_; }
  // On worker 0, why training may diverge, or nothing (protocol/gossip/doubt.h).
  const std::string& doubt() const { return doubt_; }
  const Graph& graph() const { return *graph_; }
  // Those that are there.
  std::vector<int> neighbours() const;
  // Those of all workers that were lost, while this one goes on.
  std::vector<int> lost() const { return group_ ? group_->lost() : std::vector<int>(); }
  // Into which the graph falls without the lost workers.
  GraphParts parts() const;
  // The one that a state which was just loaded goes on with.
  uint64_t next_round() const { return exchange_ ? exchange_->next_round() : 0; }
  uint64_t rounds() const { return exchange_ ? exchange_->rounds() : 0; }
  DdpStats stats();
  void ResetStats();

  // No round may be under way. Waits for what neighbours send in the rounds that have ended
  // here. In AD-PSGD it is collective: it pauses, and the weights become what they do in Pause.
  Result<Sections> SaveState(std::span<const at::Tensor> weights);
  // Collective once rounds have been made here: what the neighbours have sent ahead is taken
  // away first. Fails with CorruptData, which names what differs, and for a state that was
  // saved when workers had been lost; nothing has changed then. Fails with kUnavailable if a
  // neighbour does not load, but goes on.
  Status LoadState(Sections sections);

  // Ends communication. An error ends that of all workers, and so does closing within a round
  // or, in AD-PSGD, without a pause. Others that go on do so without this one.
  void Close(const std::string& farewell, const Status& error);

 private:
  GossipEngine(std::vector<ParameterShape> shapes, const GossipOptions& options, End end)
      : shapes_(std::move(shapes)),
        spec_(options.codec),
        kind_(options.kind),
        graph_(options.graph),
        end_(std::move(end)) {}
  Status CheckOpen() const;
  Status Check(std::span<const at::Tensor> tensors) const;
  void Read(std::span<const at::Tensor> tensors, std::vector<float>* values) const;
  void Write(const std::vector<float>& values, std::span<const at::Tensor> tensors) const;
  void CatchUp(std::span<const at::Tensor> weights);
  StateIdentity Identity() const;
  EnduringGroup::Ties Ties();
  Status Persist(const std::function<Status()>& act);
  bool has_rounds() const { return kind_ != GossipKind::kAdPsgd; }  // that all make together
  Status CheckBetweenRounds(std::span<const at::Tensor> weights) const;
  Status PauseTogether(std::string_view done);
  void Leave(const std::string& farewell, const Status& error);

  const std::vector<ParameterShape> shapes_;
  const std::string spec_;  // of the codec
  const GossipKind kind_;
  const std::shared_ptr<const Graph> graph_;
  const End end_;
  int rank_ = 0, world_size_ = 1;  // at the beginning
  double step_ = 1;
  std::string doubt_;
  std::vector<int> neighbours_;
  std::vector<float> start_, moved_;  // of the round
  std::vector<float> now_;            // in CatchUp
  bool has_begun_ = false;
  StepCounter counter_;
  Traffic final_traffic_;
  std::unique_ptr<EnduringGroup> group_;
  std::unique_ptr<GossipExchange> exchange_;  // last: its thread uses the communicator
};

}  // namespace elastiquant
