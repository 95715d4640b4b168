#include "elastiquant/protocol/gossip/pairwise.h"

#include <algorithm>
#include <string>
#include <utility>

namespace elastiquant {
Result<std::unique_ptr<GossipNode>> GossipPairs::Make(const GossipOptions& options,
                                                      std::span<const float> start) {
  EQ_ASSIGN_OR_RETURN(EdgeOptions edge, EdgeOf(options));
  const std::vector<bool> sides = options.graph->Sides();
  if (sides.empty() || !options.graph->is_static() || !options.graph->is_symmetric()) {
    return InvalidArgument(
        "ad-psgd needs a graph that does not change and whose edges join two groups, so that "
        "those of the one ask and those of the other answer: a ring of even length, a star, a "
        "hypercube; not " +
        options.graph->spec());
  }
  if (options.delay > 0) return InvalidArgument("ad-psgd has no rounds to be late by");
  const bool asks = sides[static_cast<size_t>(options.rank)];
  return std::unique_ptr<GossipNode>(new GossipPairs(options, std::move(edge), asks, start));
}

GossipPairs::GossipPairs(const GossipOptions& options, EdgeOptions edge, bool asks,
                         std::span<const float> start)
    : options_(options),
      edge_options_(std::move(edge)),
      asks_(asks),
      scratch_(std::make_unique<GossipScratch>(options.threads, options.elements)),
      start_(start.begin(), start.end()),
      x_(start_),
      moved_(options.elements) {
  for (const int peer : options_.graph->receivers(options_.rank)) {
    edges_.emplace(peer, Edge{Outlet(edge_options_, start_), Inlet(edge_options_, start_)});
  }
}

size_t GossipPairs::MaxMessageBytes() const {
  return GossipHeaderBytes(1) + edge_options_.codec->MaxFrameBytes(options_.elements);
}

StreamKey GossipPairs::KeyOf(const Edge& edge, int from, int to) const {
  return DeriveKey(options_.seed, edge.averages, static_cast<uint64_t>(from),
                   static_cast<uint64_t>(to));
}

// Returns a neighbour at random, or -1 if none is left.
int GossipPairs::Pick() const {
  std::vector<int> present;
  for (const auto& [peer, edge] : edges_) {
    if (edge.is_present) present.push_back(peer);
  }
  if (present.empty()) return -1;
  const uint64_t draw =
      DeriveKey(~options_.seed, round_, static_cast<uint64_t>(options_.rank), 0).value;
  return present[draw % present.size()];
}

Status GossipPairs::Write(int peer, GossipPart part) {
  GossipMessage message{.kind = GossipKind::kAdPsgd, .part = part};
  if (part != GossipPart::kPause) {
    Edge& edge = edges_.at(peer);
    message.round = edge.averages;
    EQ_ASSIGN_OR_RETURN(
        const Outlet::Sent sent,
        edge.outlet.Show(x_, edge.averages, KeyOf(edge, options_.rank, peer), *scratch_));
    errors_ += sent.errors;
    message.streams.push_back({sent.scale, sent.frame});
  }
  WriteGossipMessage(message, &message_);
  return {};
}

Result<GossipSends> GossipPairs::OnRound() {
  if (!std::exchange(is_paused_, false) || asks_) return GossipSends();
  for (const auto& [peer, edge] : edges_) {
    if (edge.is_present) asking_[peer] = true;
  }
  return GossipSends();
}

void GossipPairs::Move() {
  for (size_t e = 0; e < x_.size(); ++e) x_[e] += moved_[e];
  ++round_;
}

Result<GossipSends> GossipPairs::OnMoved(std::span<const float> moved) {
  if (moved.size() != options_.elements) {
    return InvalidArgument("the weights have " + std::to_string(options_.elements) +
                           " values, not " + std::to_string(moved.size()));
  }
  if (is_waiting()) return InvalidArgument("this round has had its step already");
  std::ranges::copy(moved, moved_.begin());
  const int peer = asks_ ? Pick() : -1;
  if (peer < 0) {
    Move();
    return GossipSends();
  }
  EQ_RETURN_IF_ERROR(Write(peer, GossipPart::kAsk));
  asked_ = peer;
  return GossipSends{{peer, message_}};
}

Result<Decoded> GossipPairs::Read(int from, const GossipMessage& message) {
  const Edge& edge = edges_.at(from);
  if (message.streams.size() != 1 || message.round != edge.averages) {
    return BadGossipMessage(from, "is of another average");
  }
  return DecodeShown(from, message.streams[0], options_.elements,
                     KeyOf(edge, from, options_.rank), *scratch_);
}

// Both have shown each other their weights.
void GossipPairs::Average(int peer, Decoded theirs) {
  Edge& edge = edges_.at(peer);
  edge.inlet.Take(std::move(theirs), edge.averages, *scratch_);
  const auto half = static_cast<float>(options_.step / 2);
  const std::span<const float> other = edge.inlet.replica(), own = edge.outlet.replica();
  for (size_t e = 0; e < x_.size(); ++e) x_[e] += half * (other[e] - own[e]);
  ++edge.averages;
}

Result<GossipSends> GossipPairs::OnMessage(int from, std::span<const uint8_t> bytes) {
  const auto found = edges_.find(from);
  if (found == edges_.end()) return BadGossipMessage(from, "is of no neighbour");
  EQ_ASSIGN_OR_RETURN(const GossipMessage message, ReadGossipMessage(bytes));
  if (message.kind != GossipKind::kAdPsgd)
    return BadGossipMessage(from, "is of another algorithm");
  if (!found->second.is_present) return GossipSends();
  if (!asks_ && message.part == GossipPart::kPause) {
    asking_.erase(from);
    return GossipSends();
  }
  const bool is_due = asks_ ? message.part == GossipPart::kAnswer && from == asked_
                            : message.part == GossipPart::kAsk;
  if (!is_due) return BadGossipMessage(from, "is not what is due");
  EQ_ASSIGN_OR_RETURN(Decoded theirs, Read(from, message));
  if (asks_) {
    Average(from, std::move(theirs));
    asked_ = -1;
    Move();
    return GossipSends();
  }
  EQ_RETURN_IF_ERROR(Write(from, GossipPart::kAnswer));
  Average(from, std::move(theirs));
  return GossipSends{{from, message_}};
}

std::vector<int> GossipPairs::WaitsFor() const {
  if (asked_ >= 0) return {asked_};
  return {};
}

GossipSends GossipPairs::OnPause() {
  GossipSends sends;
  if (std::exchange(is_paused_, true) || !asks_) return sends;
  // It has no frame, so that it cannot fail.
  (void)Write(-1, GossipPart::kPause);
  for (const auto& [peer, edge] : edges_) {
    if (edge.is_present) sends.push_back({peer, message_});
  }
  return sends;
}

Result<GossipSends> GossipPairs::Drop(int peer, uint64_t /*round*/) {
  const auto found = edges_.find(peer);
  if (found == edges_.end()) return GossipSends();
  found->second.is_present = false;
  asking_.erase(peer);
  if (asked_ != peer) return GossipSends();
  asked_ = -1;
  Move();  // alone
  return GossipSends();
}

Status GossipPairs::Admit(int peer, uint64_t /*round*/, std::span<const float> weights) {
  if (!edges_.contains(peer)) return {};
  if (asked_ == peer) return InvalidArgument("an answer is waited for");
  edges_.erase(peer);
  edges_.emplace(peer, Edge{Outlet(edge_options_, weights), Inlet(edge_options_, weights)});
  if (!asks_ && !is_paused_) asking_[peer] = true;
  return {};
}

uint64_t GossipPairs::RoundsFrom(int peer) const {
  const auto found = edges_.find(peer);
  return found == edges_.end() ? 0 : found->second.averages;
}

std::span<const float> GossipPairs::ReplicaOf(int peer, size_t stream) const {
  const auto found = edges_.find(peer);
  if (found == edges_.end() || stream > 0) return {};
  return found->second.inlet.replica();
}

std::span<const float> GossipPairs::ReplicaAt(int peer, size_t stream) const {
  const auto found = edges_.find(peer);
  if (found == edges_.end() || stream > 0) return {};
  return found->second.outlet.replica();
}

Result<GossipState> GossipPairs::Save() {
  if (is_waiting()) return InvalidArgument("an answer is waited for");
  GossipState state{.round = round_};
  KeepIn(&state, "")("x", x_);
  for (auto& [peer, edge] : edges_) {
    const std::string name = std::to_string(peer);
    edge.outlet.ForEachField(KeepIn(&state, "out/" + name + "/"));
    edge.inlet.ForEachField(KeepIn(&state, "in/" + name + "/"));
    state.counts[name] = edge.averages;
  }
  return state;
}

Status GossipPairs::Load(const GossipState& state) {
  GossipPairs loaded(options_, edge_options_, asks_, start_);
  StateReader reader(state);
  reader.PutFrom("")("x", loaded.x_);
  bool has_counts = state.counts.size() == edges_.size();
  for (auto& [peer, edge] : loaded.edges_) {
    const std::string name = std::to_string(peer);
    edge.outlet.ForEachField(reader.PutFrom("out/" + name + "/"));
    edge.inlet.ForEachField(reader.PutFrom("in/" + name + "/"));
    const auto count = state.counts.find(name);
    has_counts = has_counts && count != state.counts.end();
    if (has_counts) edge.averages = count->second;
  }
  EQ_RETURN_IF_ERROR(reader.status());
  if (!has_counts) return InvalidArgument("the state is of another graph");
  loaded.round_ = state.round;
  *this = std::move(loaded);
  return {};
}

}  // namespace elastiquant
