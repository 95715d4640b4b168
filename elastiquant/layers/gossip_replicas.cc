// Whether neighbours have the same replicas of each other.
#include <bit>
#include <numeric>
#include <string>

#include "elastiquant/base/contains.h"
#include "elastiquant/base/random.h"
#include "elastiquant/layers/gossip_exchange.h"

namespace elastiquant {

bool GossipExchange::TakesFrom(int node) const {
  return Contains(options_.graph->senders(options_.rank), node);
}

bool GossipExchange::GivesTo(int node) const {
  return Contains(options_.graph->receivers(options_.rank), node);
}

// Of the hashes that this worker has as a sender and as a receiver. Each hash is on both ends
// of its edge, so the differences of all workers add up to 0.
uint64_t GossipExchange::Difference() const {
  uint64_t difference = 0;
  for (const int node : nodes_) {
    const auto self = static_cast<uint64_t>(options_.rank), peer = static_cast<uint64_t>(node);
    if (GivesTo(node)) difference += DeriveKey(node_->HashAt(node), self, peer, 0).value;
    if (TakesFrom(node)) difference -= DeriveKey(node_->HashOf(node), peer, self, 0).value;
  }
  return difference;
}

// Collective. Returns, on all, the first node whose replica of the sender is not the sender's,
// or -1.
Result<int> GossipExchange::FindOddReceiver(int sender) {
  const bool is_sender = options_.rank == sender;
  EQ_ASSIGN_OR_RETURN(const auto hashes,
                      comm_->AllGather(TakesFrom(sender) ? node_->HashOf(sender) : 0));
  uint64_t odd = 0;  // the node + 1, on the sender
  for (size_t r = 0; is_sender && r < nodes_.size() && odd == 0; ++r) {
    const bool differs = GivesTo(nodes_[r]) && hashes[r] != node_->HashAt(nodes_[r]);
    if (differs) odd = static_cast<uint64_t>(nodes_[r]) + 1;
  }
  EQ_ASSIGN_OR_RETURN(const auto found, comm_->AllGather(odd));
  return static_cast<int>(found[static_cast<size_t>(RankOf(sender))]) - 1;
}

Result<std::string> GossipExchange::OddReplicas() {
  std::string odd;
  if (!node_->has_replicas()) return odd;  // the same on all workers
  EQ_ASSIGN_OR_RETURN(const auto differences, comm_->AllGather(Difference()));
  if (std::accumulate(differences.begin(), differences.end(), uint64_t{0}) == 0) return odd;
  for (const int sender : nodes_) {
    EQ_ASSIGN_OR_RETURN(const int receiver, FindOddReceiver(sender));
    if (receiver < 0) continue;
    odd +=
        (odd.empty() ? "" : ", ") + std::to_string(sender) + " > " + std::to_string(receiver);
  }
  return odd;
}

Status GossipExchange::Drift() {
  EQ_ASSIGN_OR_RETURN(GossipState state, node_->Save());
  for (auto& [name, values] : state.vectors) {
    if (!name.starts_with("in/") || values.empty()) continue;
    values[0] = std::bit_cast<float>(std::bit_cast<uint32_t>(values[0]) ^ 1);
    return node_->Load(state);
  }
  return InvalidArgument("no neighbour has shown this worker anything yet");
}

}  // namespace elastiquant
