#include "elastiquant/protocol/gossip/rounds.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "elastiquant/base/contains.h"

namespace elastiquant {
namespace {

// The key of the outlet to all receivers, where there is one.
constexpr int kAll = -1;

StreamKey KeyOf(const GossipOptions& options, uint64_t round, int from, int to, size_t stream) {
  const auto edge = static_cast<uint64_t>(to - kAll) * 2 + stream;
  return DeriveKey(options.seed, round, static_cast<uint64_t>(from), edge);
}

// Tang et al. suppose a symmetric W. With complex eigenvalues D^2 can diverge, as it does on
// the exponential graph of 8 workers (`elastiquant theory --graph exponential --problem
// logistic`).
Status CheckGraphOfD2(const Graph& graph) {
  if (!graph.is_static() || !graph.is_symmetric()) {
    return InvalidArgument(
        "d2 needs a graph that does not change and on which neighbours give each other as much "
        "as they take, such as ring:lazy=1; not " +
        graph.spec() + ", on which gradient-tracking does what d2 does");
  }
  const double least = graph.Factors().least_eigenvalue;
  // A ring of even length lies just at the limit.
  if (!(least > -1.0 / 3 + 1e-9)) {
    return InvalidArgument(
        "d2 needs a graph whose least eigenvalue is above -1/3; " + graph.spec() + " has " +
        std::to_string(least) + ": take (I + W) / 2, which is '" + graph.spec() +
        (graph.spec().find(':') == std::string::npos ? ":" : ",") + "lazy=1'");
  }
  return {};
}

Status CheckGraph(const GossipOptions& o, const GossipRule& rule) {
  const Graph& graph = *o.graph;
  if (rule.needs_static_graph() && !graph.is_static()) {
    return InvalidArgument(
        "this algorithm needs a graph that does not change, because it "
        "averages what all neighbours have shown last: not " +
        graph.spec());
  }
  if (o.kind == GossipKind::kD2) EQ_RETURN_IF_ERROR(CheckGraphOfD2(graph));
  if (o.delay > 0 && o.kind != GossipKind::kChoco) {
    return InvalidArgument("only choco can wait for the messages of the round before");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<GossipNode>> GossipRounds::Make(const GossipOptions& options,
                                                       std::span<const float> start) {
  EQ_ASSIGN_OR_RETURN(EdgeOptions edge, EdgeOf(options));
  std::unique_ptr<GossipRounds> node(new GossipRounds(options, std::move(edge), start));
  EQ_RETURN_IF_ERROR(CheckGraph(options, *node->rule_));
  return std::unique_ptr<GossipNode>(std::move(node));
}

GossipRounds::GossipRounds(const GossipOptions& options, EdgeOptions edge,
                           std::span<const float> start)
    : options_(options),
      edge_(std::move(edge)),
      attendance_(options.graph, options.rank),
      rule_(MakeGossipRule(options.kind, {.elements = options.elements,
                                          .outer_rate = options.outer_rate,
                                          .outer_momentum = options.outer_momentum})),
      scratch_(std::make_unique<GossipScratch>(options.threads, options.elements)),
      start_(start.begin(), start.end()),
      x_(start_),
      weights_(is_push_sum() ? start_ : Vector()),
      moved_(options.elements),
      shown_(rule_->streams(), Vector(options.elements)),
      mixed_(rule_->streams(), Vector(options.elements)) {
  edge_.update = rule_->update();
  edge_.shrinks = rule_->shrinks();
  if (!options_.graph->is_static()) return;
  OutletsTo(kAll);
  for (const int peer : options_.graph->senders(rank())) InletsOf(peer);
}

size_t GossipRounds::MaxMessageBytes() const {
  const size_t streams = rule_->streams();
  return GossipHeaderBytes(streams) + streams * edge_.codec->MaxFrameBytes(options_.elements);
}

// Both ends of an edge know the weights that all start from, and of other vectors nothing.
std::span<const float> GossipRounds::StartOf(size_t stream) const {
  return stream == 0 ? std::span<const float>(start_) : std::span<const float>();
}

std::vector<Outlet>& GossipRounds::OutletsTo(int peer) {
  std::vector<Outlet>& outlets = outlets_[has_one_outlet() ? kAll : peer];
  while (outlets.size() < rule_->streams()) {
    outlets.emplace_back(edge_, StartOf(outlets.size()));
  }
  return outlets;
}

std::vector<Inlet>& GossipRounds::InletsOf(int peer) {
  std::vector<Inlet>& inlets = inlets_[peer];
  while (inlets.size() < rule_->streams()) inlets.emplace_back(edge_, StartOf(inlets.size()));
  return inlets;
}

// What is to be sent.

Status GossipRounds::CheckMoved(std::span<const float> moved) const {
  if (moved.size() != options_.elements) {
    return InvalidArgument("the weights have " + std::to_string(options_.elements) +
                           " values, not " + std::to_string(moved.size()));
  }
  if (has_moved_) return InvalidArgument("this round has had its step already");
  return {};
}

GossipRule::Round GossipRounds::RoundNow() {
  GossipRule::Round round{.number = round_, .x = x_, .moved = moved_};
  if (!rule_->needs_static_graph()) return round;
  round.replica_before = OutletsTo(kAll)[0].replica();
  round.mixed_before = mixed_[0];
  return round;
}

// Of the peer, or of all.
Status GossipRounds::Encode(int peer, std::vector<uint8_t>* bytes) {
  GossipMessage message{.kind = options_.kind, .round = round_, .weight = weight_};
  std::vector<Outlet>& outlets = OutletsTo(peer);
  for (size_t s = 0; s < outlets.size(); ++s) {
    EQ_ASSIGN_OR_RETURN(const Outlet::Sent sent,
                        outlets[s].Show(shown_[s], round_,
                                        KeyOf(options_, round_, rank(), peer, s), *scratch_));
    errors_ += sent.errors;
    message.streams.push_back({sent.scale, sent.frame});
  }
  WriteGossipMessage(message, bytes);
  return {};
}

Result<GossipSends> GossipRounds::Show() {
  if (rule_->needs_static_graph()) Mix(round_);
  rule_->Propose(RoundNow(), &shown_);
  GossipSends sends;
  messages_.clear();
  if (options_.graph->is_static()) {
    // Also if nobody is there to take it, as others may come back.
    EQ_RETURN_IF_ERROR(Encode(kAll, &messages_[kAll]));
  }
  for (const int peer : ReceiversIn(round_)) {
    const int key = has_one_outlet() ? kAll : peer;
    if (!messages_.contains(key)) EQ_RETURN_IF_ERROR(Encode(key, &messages_[key]));
    sends.push_back({peer, messages_[key]});
  }
  has_shown_ = true;
  return sends;
}

Result<GossipSends> GossipRounds::OnRound() {
  if (!rule_->is_early() || has_shown_) return GossipSends();
  return Show();
}

Result<GossipSends> GossipRounds::OnMoved(std::span<const float> moved) {
  EQ_RETURN_IF_ERROR(CheckMoved(moved));
  std::ranges::copy(moved, moved_.begin());
  GossipSends sends;
  if (options_.delay == 0 && !has_shown_) {
    EQ_ASSIGN_OR_RETURN(sends, Show());
  }
  has_moved_ = true;
  EQ_ASSIGN_OR_RETURN(const GossipSends more, Advance());
  sends.insert(sends.end(), more.begin(), more.end());
  return sends;
}

// What comes.

Result<GossipRounds::Received> GossipRounds::Decode(int from, const GossipMessage& message) {
  Received received{.weight = message.weight};
  const int to = has_one_outlet() ? kAll : rank();
  for (size_t s = 0; s < message.streams.size(); ++s) {
    const StreamKey key = KeyOf(options_, message.round, from, to, s);
    EQ_ASSIGN_OR_RETURN(Decoded decoded, DecodeShown(from, message.streams[s],
                                                     options_.elements, key, *scratch_));
    received.streams.push_back(std::move(decoded));
  }
  return received;
}

Result<GossipSends> GossipRounds::OnMessage(int from, std::span<const uint8_t> bytes) {
  if (from < 0 || static_cast<size_t>(from) >= options_.graph->nodes() || from == rank()) {
    return BadGossipMessage(from, "is of no neighbour");
  }
  EQ_ASSIGN_OR_RETURN(const GossipMessage message, ReadGossipMessage(bytes));
  if (message.kind != options_.kind || message.part != GossipPart::kShow ||
      message.streams.size() != rule_->streams()) {
    return BadGossipMessage(from, "is of another algorithm");
  }
  const uint64_t first = round_ - std::min<uint64_t>(round_, is_mixed_ ? 0 : 1);
  if (message.round < first) return BadGossipMessage(from, "is of a round that is over");
  if (!attendance_.is_present(from, message.round)) return GossipSends();
  if (attendance_.TakesFrom(from, message.round) == 0) {
    return BadGossipMessage(from, "is of a round in which nothing is taken from it");
  }
  std::map<uint64_t, Received>& slot = inbox_[from];
  if (slot.contains(message.round))
    return BadGossipMessage(from, "is its second one of the round");
  // Nobody can be further ahead, as all take from others that take from this worker in the end.
  // (Of two who are paired, one may have been alone for many rounds; it sends nothing in them.)
  if (slot.size() > options_.graph->nodes())
    return BadGossipMessage(from, "is of too late a round");
  EQ_ASSIGN_OR_RETURN(Received received, Decode(from, message));
  slot.emplace(message.round, std::move(received));
  seen_[from] = std::max(seen_[from], message.round + 1);
  return Advance();
}

std::vector<int> GossipRounds::MissingIn(uint64_t round) const {
  std::vector<int> missing = attendance_.SendersIn(round);
  std::erase_if(missing, [&](int peer) {
    const auto slot = inbox_.find(peer);
    return slot != inbox_.end() && slot->second.contains(round);
  });
  return missing;
}

// How rounds end.

// Moves the replicas of the neighbours by what has come of a round.
void GossipRounds::TakeMessages(uint64_t round) {
  double weight = weight_;
  for (const int peer : attendance_.ReceiversIn(round)) {
    weight -= attendance_.GivesTo(peer, round) * weight_;
  }
  for (auto& [peer, slot] : inbox_) {
    const auto found = slot.find(round);
    if (found == slot.end()) continue;
    std::vector<Inlet>& inlets = InletsOf(peer);
    for (size_t s = 0; s < inlets.size(); ++s) {
      inlets[s].Take(std::move(found->second.streams[s]), round, *scratch_);
    }
    weight += attendance_.TakesFrom(peer, round) * found->second.weight;
    slot.erase(found);
  }
  if (is_push_sum()) weight_ = weight;
}

// The replicas of a stream that make up what is mixed of it, with their weights. Push-sum needs
// no balance of what is given and taken, as its weights tell the two apart.
std::vector<WeightedVector> GossipRounds::SharesOf(size_t stream, uint64_t round) {
  std::vector<WeightedVector> shares;
  const double part = is_push_sum() ? 1 : attendance_.PartGiven(round);
  if (part == 0) return shares;
  for (const int peer : attendance_.SendersIn(round)) {
    shares.push_back(
        {attendance_.TakesFrom(peer, round), InletsOf(peer)[stream].replica().data()});
  }
  double given = 0;  // of the one outlet
  for (const int peer : attendance_.ReceiversIn(round)) {
    const double weight = part * attendance_.GivesTo(peer, round);
    if (has_one_outlet()) {
      given += weight;
    } else {
      shares.push_back({-weight, OutletsTo(peer)[stream].replica().data()});
    }
  }
  if (given > 0) shares.push_back({-given, OutletsTo(kAll)[stream].replica().data()});
  return shares;
}

// Sets mixed_ to what replicas, as they are, make of the weights of a round.
void GossipRounds::Mix(uint64_t round) {
  for (size_t s = 0; s < mixed_.size(); ++s) {
    const std::vector<WeightedVector> shares = SharesOf(s, round);
    scratch_->ForEachBlock([&](size_t begin, size_t size) {
      std::vector<WeightedVector> parts = shares;
      for (WeightedVector& part : parts) part.values += begin;
      WeightedSum(parts, options_.step, size, mixed_[s].data() + begin);
    });
  }
}

// Of the round before, if all of it has come.
void GossipRounds::TakeOwed() {
  if (is_mixed_ || !MissingIn(round_ - 1).empty()) return;
  TakeMessages(round_ - 1);
  Mix(round_ - 1);
  is_mixed_ = true;
}

Result<GossipSends> GossipRounds::Advance() {
  GossipSends sends;
  TakeOwed();
  if (!has_moved_) return sends;
  if (options_.delay > 0) {
    if (!is_mixed_) return sends;
    EQ_ASSIGN_OR_RETURN(sends, Show());
    EndRound();
    is_mixed_ = false;
    TakeOwed();
    return sends;
  }
  if (!MissingIn(round_).empty()) return sends;
  TakeMessages(round_);
  Mix(round_);
  EndRound();
  return sends;
}

void GossipRounds::EndRound() {
  const GossipRule::Round round = RoundNow();
  std::span<const float> replica;
  if (has_one_outlet()) replica = OutletsTo(kAll)[0].replica();
  rule_->Absorb(round, shown_, mixed_, replica, x_);
  ++round_;
  has_shown_ = has_moved_ = false;
  Debias();
}

void GossipRounds::Debias() {
  if (!is_push_sum()) return;
  const auto weight = static_cast<float>(weight_);
  for (size_t e = 0; e < x_.size(); ++e) weights_[e] = x_[e] / weight;
}

bool GossipRounds::is_owed() const { return !is_mixed_; }

std::vector<int> GossipRounds::WaitsFor() const {
  if (!has_moved_ && is_mixed_) return {};
  return MissingIn(is_mixed_ ? round_ : round_ - 1);
}

// Workers that are lost.

Result<GossipSends> GossipRounds::Drop(int peer, uint64_t round) {
  if (peer < 0 || static_cast<size_t>(peer) >= options_.graph->nodes() || peer == rank()) {
    return InvalidArgument("worker " + std::to_string(peer) + " is no neighbour");
  }
  if (round < round_ - (is_mixed_ ? 0 : 1)) {
    return InvalidArgument("round " + std::to_string(round) + " has ended here");
  }
  attendance_.Leave(peer, round);
  std::erase_if(inbox_[peer], [round](const auto& entry) { return entry.first >= round; });
  return Advance();
}

Status GossipRounds::Admit(int peer, uint64_t round, std::span<const float> weights) {
  if (rule_->streams() > 1 || options_.kind == GossipKind::kD2 ||
      edge_.update == ReplicaUpdate::kExtrapolated) {
    return InvalidArgument("workers of this algorithm cannot begin anew one by one");
  }
  if (round < round_ + (has_shown_ ? 1 : 0)) {
    return InvalidArgument("round " + std::to_string(round) + " has begun here");
  }
  attendance_.Return(peer, round);
  inbox_.erase(peer);
  if (Contains(options_.graph->senders(rank()), peer)) inlets_[peer] = {Inlet(edge_, weights)};
  if (!has_one_outlet() && Contains(options_.graph->receivers(rank()), peer)) {
    outlets_.erase(peer);
    outlets_[peer].emplace_back(edge_, weights);
  }
  seen_[peer] = round;
  return {};
}

uint64_t GossipRounds::RoundsFrom(int peer) const {
  const auto found = seen_.find(peer);
  return found == seen_.end() ? 0 : found->second;
}

std::span<const float> GossipRounds::ReplicaOf(int peer, size_t stream) const {
  const auto found = inlets_.find(peer);
  if (found == inlets_.end()) return {};
  return found->second[stream].replica();
}

std::span<const float> GossipRounds::ReplicaAt(int peer, size_t stream) const {
  const auto found = outlets_.find(has_one_outlet() ? kAll : peer);
  if (found == outlets_.end()) return {};
  return found->second[stream].replica();
}

// States.

namespace {

std::string NameOf(const char* end, int peer, size_t stream) {
  return std::string(end) + "/" + std::to_string(peer) + "/" + std::to_string(stream) + "/";
}

}  // namespace

Result<GossipState> GossipRounds::Save() {
  if (has_moved_ || has_shown_ || !is_mixed_) {
    return InvalidArgument("a round is under way, or messages of the last one are owed");
  }
  GossipState state{.round = round_, .weight = weight_};
  KeepIn(&state, "")("x", x_);
  if (makes_replicas_late()) KeepIn(&state, "")("start", start_);
  rule_->ForEachField(KeepIn(&state, "rule/"));
  if (options_.delay > 0) KeepIn(&state, "")("mixed", mixed_[0]);
  for (auto& [peer, outlets] : outlets_) {
    for (size_t s = 0; s < outlets.size(); ++s) {
      outlets[s].ForEachField(KeepIn(&state, NameOf("out", peer, s)));
    }
  }
  for (auto& [peer, inlets] : inlets_) {
    for (size_t s = 0; s < inlets.size(); ++s) {
      inlets[s].ForEachField(KeepIn(&state, NameOf("in", peer, s)));
    }
  }
  return state;
}

// Of the replicas that a state has, as on graphs that change there are those of the edges only
// that have been used.
void GossipRounds::LoadReplicas(const GossipState& state, StateReader* reader) {
  for (int peer = kAll; peer < static_cast<int>(options_.graph->nodes()); ++peer) {
    if (state.vectors.contains(NameOf("out", peer, 0) + "replica")) {
      std::vector<Outlet>& outlets = OutletsTo(peer);
      for (size_t s = 0; s < outlets.size(); ++s) {
        outlets[s].ForEachField(reader->PutFrom(NameOf("out", peer, s)));
      }
    }
    if (state.vectors.contains(NameOf("in", peer, 0) + "replica")) {
      std::vector<Inlet>& inlets = InletsOf(peer);
      for (size_t s = 0; s < inlets.size(); ++s) {
        inlets[s].ForEachField(reader->PutFrom(NameOf("in", peer, s)));
      }
    }
  }
}

Status GossipRounds::Load(const GossipState& state) {
  GossipRounds loaded(options_, edge_, start_);
  StateReader reader(state);
  reader.PutFrom("")("x", loaded.x_);
  if (makes_replicas_late()) reader.PutFrom("")("start", loaded.start_);
  loaded.rule_->ForEachField(reader.PutFrom("rule/"));
  if (options_.delay > 0) reader.PutFrom("")("mixed", loaded.mixed_[0]);
  loaded.LoadReplicas(state, &reader);
  EQ_RETURN_IF_ERROR(reader.status());
  if (!(state.weight > 0) || !std::isfinite(state.weight) || !state.counts.empty()) {
    return InvalidArgument("the state is of another algorithm, or its weight is damaged");
  }
  loaded.round_ = state.round;
  loaded.weight_ = state.weight;
  loaded.Debias();
  *this = std::move(loaded);
  return {};
}

}  // namespace elastiquant
