// How an exchange goes on in a group that has lost workers, or that others join.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "elastiquant/base/contains.h"
#include "elastiquant/layers/gossip_exchange.h"

namespace elastiquant {
namespace {

constexpr uint32_t kReplicaTag = 8;

}  // namespace

void GossipExchange::KeepMessages() { keeps_ = true; }

void GossipExchange::Leave() {
  (void)JoinServer();
  server_ = {};
  server_status_ = {};
  for (const auto& incoming : std::exchange(coming_, {})) (void)incoming->Wait();
  for (const auto& transfer : std::exchange(sent_, {})) (void)transfer->Wait();
}

// Collective. Returns how many of this worker's messages each node of the group has taken.
Result<std::map<int, uint64_t>> GossipExchange::TakenByOthers() {
  std::map<int, uint64_t> taken;
  for (size_t sender = 0; sender < nodes_.size(); ++sender) {
    const auto found = peers_.find(nodes_[sender]);
    EQ_ASSIGN_OR_RETURN(const auto all,
                        comm_->AllGather(found == peers_.end() ? 0 : found->second.taken));
    if (static_cast<int>(sender) != comm_->rank()) continue;
    for (size_t r = 0; r < all.size(); ++r) taken[nodes_[r]] = all[r];
  }
  return taken;
}

// Those that are not in the group any more, or are in it as others than they were.
Status GossipExchange::DropLost(const std::vector<int>& newcomers) {
  for (const int node : joined_) {
    const bool stays = Contains(nodes_, node) && !Contains(newcomers, node);
    if (stays || node == options_.rank) continue;
    peers_.erase(node);
    EQ_ASSIGN_OR_RETURN(const GossipSends sends, node_->Drop(node, node_->FirstWithout(node)));
    for (const GossipSend& send : sends) Keep(send);  // they go with what is sent again
  }
  joined_ = nodes_;
  return {};
}

Status GossipExchange::SendAgain(int node, uint64_t taken) {
  const Peer& peer = peers_[node];
  const uint64_t missing = peer.sent - std::min(taken, peer.sent);
  if (missing > peer.kept.size()) {
    return Internal("worker " + std::to_string(node) + " has not had the last " +
                    std::to_string(missing) + " messages, of which " +
                    std::to_string(peer.kept.size()) + " are left");
  }
  for (size_t m = peer.kept.size() - missing; m < peer.kept.size(); ++m) {
    sent_.push_back(comm_->Send(RankOf(node), kGossipTag, peer.kept[m]));
  }
  return {};
}

Status GossipExchange::Join(const std::vector<int>& nodes, const std::vector<int>& newcomers) {
  nodes_ = nodes;
  const bool knows = !Contains(newcomers, options_.rank);
  if (!knows) {
    peers_.clear();
    joined_ = nodes;
  }
  EQ_ASSIGN_OR_RETURN(const auto taken, TakenByOthers());
  EQ_ASSIGN_OR_RETURN(const auto begun,
                      comm_->AllGather(knows ? std::max(node_->round(), begun_) : 0));
  ahead_from_ = *std::ranges::max_element(begun);
  if (!knows) return {};
  EQ_RETURN_IF_ERROR(DropLost(newcomers));
  // In the order in which they will be waited for, and before anything is sent. None ahead:
  // workers may be in different rounds, or pausing.
  posted_ = node_->round() - (node_->is_owed() ? 1 : 0);
  PostReceivesUntil(std::max(node_->round(), begun_));
  for (const int node : nodes_) {
    if (node == options_.rank || Contains(newcomers, node)) continue;
    EQ_RETURN_IF_ERROR(SendAgain(node, taken.at(node)));
  }
  if (node_->is_serving()) server_ = std::thread([this] { Serve(); });
  return {};
}

// Whether there is something that newcomers cannot know: elsewhere both ends of an edge begin
// anew.
bool GossipExchange::ShowsAllTheSame() const {
  return options_.graph->is_static() && options_.kind != GossipKind::kAdPsgd;
}

// What this worker has shown all its neighbours, to those that are new among them.
Status GossipExchange::SendReplicas(const std::vector<int>& newcomers) {
  if (!ShowsAllTheSame()) return {};
  std::vector<std::unique_ptr<Transfer>> sent;
  for (const int node : newcomers) {
    if (!GivesTo(node)) continue;
    const std::span<const float> replica = node_->ReplicaAt(node, 0);
    sent.push_back(
        comm_->Send(RankOf(node), kReplicaTag,
                    {reinterpret_cast<const uint8_t*>(replica.data()), replica.size_bytes()}));
  }
  for (const auto& transfer : sent) EQ_RETURN_IF_ERROR(transfer->Wait().status());
  return {};
}

// A newcomer's beginning.
Status GossipExchange::BeginAt(uint64_t round, double step, const std::vector<int>& newcomers,
                               std::span<const float> weights) {
  options_.step = step_ = step;
  EQ_ASSIGN_OR_RETURN(node_, GossipNode::Make(options_, weights));
  EQ_ASSIGN_OR_RETURN(GossipState state, node_->Save());
  state.round = round;
  const std::vector<int> senders =
      ShowsAllTheSame() ? options_.graph->senders(options_.rank) : std::vector<int>();
  for (const int node : senders) {
    const int rank = RankOf(node);
    if (rank < 0 || Contains(newcomers, node)) continue;
    std::vector<float>& replica = state.vectors.at("in/" + std::to_string(node) + "/0/replica");
    const auto incoming = comm_->Receive(rank, kReplicaTag, options_.elements * sizeof(float));
    EQ_RETURN_IF_ERROR(incoming->Wait().status());
    if (incoming->bytes().size() != options_.elements * sizeof(float)) {
      return CorruptData("worker " + std::to_string(node) + " has another model");
    }
    std::memcpy(replica.data(), incoming->bytes().data(), incoming->bytes().size());
  }
  EQ_RETURN_IF_ERROR(Load(state));
  // The nodes that are missing.
  for (int node = 0; node < static_cast<int>(options_.graph->nodes()); ++node) {
    if (RankOf(node) >= 0) continue;
    EQ_RETURN_IF_ERROR(node_->Drop(node, round).status());
  }
  return {};
}

Status GossipExchange::Admit(const std::vector<int>& newcomers,
                             std::span<const float> weights) {
  if (newcomers.empty()) return {};
  EQ_ASSIGN_OR_RETURN(const auto rounds, comm_->AllGather(node_ ? node_->round() : 0));
  EQ_ASSIGN_OR_RETURN(const auto steps, comm_->AllGather(std::bit_cast<uint64_t>(step_)));
  size_t source = 0;  // the rank of one that is no newcomer
  while (source < nodes_.size() && Contains(newcomers, nodes_[source])) ++source;
  if (source == nodes_.size()) return Unavailable("no worker is left that knows the run");
  for (size_t r = 0; r < nodes_.size(); ++r) {
    if (Contains(newcomers, nodes_[r]) || rounds[r] == rounds[source]) continue;
    if (options_.kind == GossipKind::kAdPsgd) continue;  // which has none in common
    return Internal("workers are in different rounds, in which nobody can join them");
  }
  if (Contains(newcomers, options_.rank)) {
    EQ_RETURN_IF_ERROR(
        BeginAt(rounds[source], std::bit_cast<double>(steps[source]), newcomers, weights));
    return comm_->Barrier();
  }
  for (const int node : newcomers) {
    peers_.erase(node);
    EQ_RETURN_IF_ERROR(node_->Admit(node, node_->round(), weights));
  }
  EQ_RETURN_IF_ERROR(SendReplicas(newcomers));
  return comm_->Barrier();  // newcomers are none any more only if all have admitted them
}

}  // namespace elastiquant
