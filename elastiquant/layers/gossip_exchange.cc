#include "elastiquant/layers/gossip_exchange.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "elastiquant/base/bytes.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/protocol/gossip/step_search.h"

namespace elastiquant {
namespace {

// What comes, when workers pause, to where a message of a later round was expected: this byte,
// with which no message begins, and what the sender has done.
constexpr uint8_t kNoMessage = 0;
// Receives of later rounds are posted if a message needs no more room than this: a link takes
// far longer to send larger ones than to say that there is room.
constexpr size_t kRoomAhead = 4 << 20;

// Collective. A search takes a while, so worker 0 makes it for all.
Result<double> FindStep(Communicator* comm, const GossipOptions& options) {
  EQ_ASSIGN_OR_RETURN(const bool needs_search, NeedsStepSearch(options));
  if (!needs_search || comm->world_size() == 1) return 1;
  double step = 1;
  Status status;
  if (comm->rank() == 0) {
    const auto search = SearchGossipStep(options);
    status = search.status();
    if (search.ok()) step = search->best;
  }
  std::vector<uint8_t> bytes = BytesOf(std::span<const double>(&step, 1));
  EQ_RETURN_IF_ERROR(comm->Broadcast(0, bytes));
  EQ_RETURN_IF_ERROR(status);
  std::memcpy(&step, bytes.data(), sizeof(step));
  return step;
}

bool IsNoMessage(const Incoming& incoming) {
  return !incoming.bytes().empty() && incoming.bytes()[0] == kNoMessage;
}

}  // namespace

void SetModel(const std::vector<ParameterShape>& parameters, GossipOptions* options) {
  options->elements = 0;
  options->shapes.clear();
  for (const ParameterShape& p : parameters) {
    options->elements += p.elements;
    options->shapes.push_back(
        {.rows = p.rows, .cols = p.elements / p.rows, .kernel = p.kernel});
  }
}

Status CheckSameGraph(Communicator* comm, const Graph& graph) {
  EQ_ASSIGN_OR_RETURN(const auto digests, comm->AllGather(graph.Digest()));
  std::string others;
  for (size_t rank = 0; rank < digests.size(); ++rank) {
    if (digests[rank] == digests[0]) continue;
    others += (others.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (others.empty()) return {};
  const std::string what = IsEdgeFile(graph.spec())
                               ? "the file " + graph.spec() + " must have the same edges and " +
                                     "weights on all machines"
                               : "give all the same graph and seed";
  return InvalidArgument("the graph of worker(s) " + others +
                         " is not that of worker 0: " + what);
}

Result<std::unique_ptr<GossipExchange>> GossipExchange::Make(Communicator* comm,
                                                             GossipOptions options,
                                                             std::span<const float> start) {
  options.rank = comm->rank();
  if (options.graph && options.graph->nodes() != static_cast<size_t>(comm->world_size())) {
    return InvalidArgument("the graph has " + std::to_string(options.graph->nodes()) +
                           " nodes, and there are " + std::to_string(comm->world_size()) +
                           " workers");
  }
  if (options.step == 0) {
    EQ_ASSIGN_OR_RETURN(options.step, FindStep(comm, options));
  }
  EQ_ASSIGN_OR_RETURN(std::unique_ptr<GossipNode> node, GossipNode::Make(options, start));
  return std::unique_ptr<GossipExchange>(
      new GossipExchange(comm, std::move(options), std::move(node)));
}

std::unique_ptr<GossipExchange> GossipExchange::MakeNewcomer(Communicator* comm,
                                                             GossipOptions options) {
  return std::unique_ptr<GossipExchange>(new GossipExchange(comm, std::move(options), nullptr));
}

GossipExchange::GossipExchange(Communicator* comm, GossipOptions options,
                               std::unique_ptr<GossipNode> node)
    : comm_(comm), options_(std::move(options)), node_(std::move(node)), step_(options_.step) {
  for (int rank = 0; rank < comm_->world_size(); ++rank) nodes_.push_back(rank);
  joined_ = nodes_;
}

GossipExchange::~GossipExchange() {
  (void)JoinServer();
  for (const auto& incoming : coming_) (void)incoming->Wait();  // only after an error
}

// The rank of a node, or -1 if it is not in the group.
int GossipExchange::RankOf(int node) const {
  const auto found = std::ranges::find(nodes_, node);
  return found == nodes_.end() ? -1 : static_cast<int>(found - nodes_.begin());
}

// A receiver may not have had the last messages: those of the round that it is in, and of the
// one after, in which this worker is already. One that answers nothing, on a directed graph,
// may be further behind, but not by more rounds than there are workers between the two.
void GossipExchange::Keep(const GossipSend& send) {
  Peer& peer = peers_[send.to];
  ++peer.sent;
  if (!keeps_) return;
  peer.kept.emplace_back(send.bytes.begin(), send.bytes.end());
  const size_t behind = options_.graph->is_symmetric() ? 2 : options_.graph->nodes() + 1;
  if (peer.kept.size() > behind + static_cast<size_t>(options_.delay)) peer.kept.pop_front();
}

// Sends what the node says. The communicator copies the bytes.
Status GossipExchange::Deliver(const Result<GossipSends>& sends) {
  EQ_RETURN_IF_ERROR(sends.status());
  if (sends->empty()) return {};
  // They count as sent even if the group breaks before they are.
  for (const GossipSend& send : *sends) Keep(send);
  EQ_RETURN_IF_ERROR(FlushSent());
  for (const GossipSend& send : *sends) {
    const int rank = RankOf(send.to);
    if (rank >= 0) sent_.push_back(comm_->Send(rank, kGossipTag, send.bytes));
  }
  return {};
}

// Waits until the messages before have left: so no more than two rounds of them are in memory.
Status GossipExchange::FlushSent() {
  const Stopwatch waiting;
  Status status;
  for (const auto& transfer : std::exchange(sent_, {})) {
    status = transfer->Wait().status();
    if (!status.ok()) break;
  }
  stats_.wait_seconds += waiting.Seconds();
  return status;
}

void GossipExchange::SayWhomItWaitsFor() {
  std::string list;
  for (const int peer : node_->WaitsFor()) {
    list += (list.empty() ? "" : ", ") + std::to_string(peer);
  }
  comm_->SetActivity("waiting for its neighbours " + list);
}

// One that was foreseen, or that of whoever sends first.
std::unique_ptr<Incoming> GossipExchange::NextIncoming() {
  if (coming_.empty()) return comm_->Receive(kAnyPeer, kGossipTag, node_->MaxMessageBytes());
  std::unique_ptr<Incoming> next = std::move(coming_.front());
  coming_.pop_front();
  return next;
}

Status GossipExchange::TakeOne() {
  SayWhomItWaitsFor();
  const Stopwatch waiting;
  const auto incoming = NextIncoming();
  EQ_RETURN_IF_ERROR(incoming->Wait().status());
  stats_.wait_seconds += waiting.Seconds();
  const Stopwatch decoding;
  const int from = NodeAt(incoming->from());
  if (IsNoMessage(*incoming)) {
    const auto done = incoming->bytes().subspan(1);
    return Unavailable("worker " + std::to_string(from) + " has " +
                       std::string(done.begin(), done.end()) +
                       " after fewer rounds than this one");
  }
  const Result<GossipSends> sends = node_->OnMessage(from, incoming->bytes());
  if (sends.ok()) ++peers_[from].taken;
  stats_.decode_seconds += decoding.Seconds();
  return Deliver(sends);
}

void GossipExchange::Serve() {
  while (true) {
    size_t room = 0;
    {
      const std::lock_guard lock(mutex_);
      if (!node_->is_serving()) return;
      room = node_->MaxMessageBytes();
    }
    const auto incoming = comm_->Receive(kAnyPeer, kGossipTag, room);
    Status status = incoming->Wait().status();
    const std::lock_guard lock(mutex_);
    const double waited = stats_.wait_seconds;
    if (status.ok()) {
      const Stopwatch decoding;
      const int from = NodeAt(incoming->from());
      const Result<GossipSends> sends = node_->OnMessage(from, incoming->bytes());
      if (sends.ok()) ++peers_[from].taken;
      stats_.decode_seconds += decoding.Seconds();
      status = Deliver(sends);
    }
    stats_.wait_seconds = waited;  // no step has waited here
    if (!status.ok()) {
      server_status_ = std::move(status);
      return;
    }
  }
}

Status GossipExchange::JoinServer() {
  if (server_.joinable()) server_.join();
  return server_status_;
}

// How many rounds after this one have their receives posted when it begins. The same on all
// workers, so that they know of each other's when they pause.
uint64_t GossipExchange::RoundsAhead(uint64_t round) const {
  if (round < ahead_from_ || node_->MaxMessageBytes() > kRoomAhead) return 0;
  return 1 + static_cast<uint64_t>(options_.delay);
}

void GossipExchange::PostReceivesUntil(uint64_t round) {
  for (; posted_ < round; ++posted_) {
    for (const int node : node_->MissingIn(posted_)) {
      coming_.push_back(comm_->Receive(RankOf(node), kGossipTag, node_->MaxMessageBytes()));
    }
  }
}

// All workers are in the same round, and have posted the same rounds: those that expect
// messages of later ones get something in their place.
Status GossipExchange::SettleAhead(std::string_view done) {
  std::vector<uint8_t> none{kNoMessage};
  none.insert(none.end(), done.begin(), done.end());
  none.resize(std::min(none.size(), node_->MaxMessageBytes()));
  for (uint64_t round = node_->round(); round < posted_; ++round) {
    for (const int node : node_->ReceiversIn(round)) {
      const int rank = RankOf(node);  // none of one that was ahead when it was lost
      if (rank >= 0) sent_.push_back(comm_->Send(rank, kGossipTag, none));
    }
  }
  while (!coming_.empty()) {
    const auto incoming = NextIncoming();
    EQ_RETURN_IF_ERROR(incoming->Wait().status());
    if (IsNoMessage(*incoming)) continue;
    return Unavailable("worker " + std::to_string(NodeAt(incoming->from())) +
                       " goes on, where this one pauses or ends");
  }
  posted_ = node_->round();
  return {};
}

Status GossipExchange::Begin() {
  const std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(server_status_);
  begun_ = node_->round() + 1;
  posted_ = std::max(posted_, node_->round());
  PostReceivesUntil(node_->round() + 1 + RoundsAhead(node_->round()));
  const Stopwatch encoding;
  const Result<GossipSends> sends = node_->OnRound();
  stats_.encode_seconds += encoding.Seconds();
  EQ_RETURN_IF_ERROR(Deliver(sends));
  if (node_->is_serving() && !server_.joinable()) server_ = std::thread([this] { Serve(); });
  return {};
}

void GossipExchange::CopyWeights(std::span<float> weights) {
  const std::lock_guard lock(mutex_);
  std::ranges::copy(node_->weights(), weights.begin());
}

Status GossipExchange::Finish(std::span<const float> moved) {
  const std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(server_status_);
  if (!has_moved_) {
    const Stopwatch encoding;
    const Result<GossipSends> sends = node_->OnMoved(moved);
    stats_.encode_seconds += encoding.Seconds();
    has_moved_ = sends.ok();
    EQ_RETURN_IF_ERROR(Deliver(sends));
  }
  // Who answers never waits here, so that its thread is not locked out.
  while (node_->is_waiting()) EQ_RETURN_IF_ERROR(TakeOne());
  has_moved_ = false;
  ++rounds_;
  return {};
}

Status GossipExchange::Open() {
  const bool is_open = options_.kind != GossipKind::kAdPsgd || !node_->is_paused();
  return is_open ? Status() : Begin();
}

Status GossipExchange::Pause(std::string_view done) {
  if (server_.joinable()) {
    comm_->SetActivity("waiting for its neighbours to come to an end");
    const Status status = JoinServer();
    server_ = {};
    EQ_RETURN_IF_ERROR(status);
  }
  const double waited = stats_.wait_seconds;
  const Status status = EndRounds(done);
  stats_.wait_seconds = waited;  // no step has waited here
  return status;
}

// Returns when nothing is under way any more, where no thread answers.
Status GossipExchange::EndRounds(std::string_view done) {
  EQ_RETURN_IF_ERROR(Deliver(node_->OnPause()));
  EQ_RETURN_IF_ERROR(TakeOwed());
  EQ_RETURN_IF_ERROR(SettleAhead(done));
  return FlushSent();
}

Status GossipExchange::TakeOwed() {
  const double waited = stats_.wait_seconds;
  Status status;
  while (status.ok() && node_->is_owed()) status = TakeOne();
  stats_.wait_seconds = waited;  // no step has waited here
  return status;
}

Status GossipExchange::Load(const GossipState& state) {
  EQ_RETURN_IF_ERROR(node_->Load(state));
  posted_ = begun_ = node_->round();
  return {};
}

ReducerStats GossipExchange::TakeStats() {
  const std::lock_guard lock(mutex_);
  const GossipErrors errors = node_->TakeErrors();
  stats_.squared_error = errors.squared_error;
  stats_.squared_norm = errors.squared_norm;
  return std::exchange(stats_, {});
}

}  // namespace elastiquant
