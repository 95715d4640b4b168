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

constexpr uint32_t kGossipTag = 7;

// Collective. A search takes a while, so worker 0 makes it for all.
Result<double> FindStep(Communicator* comm, const GossipOptions& options) {
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(options.codec));
  const bool needs_none = codec->codec_class() == CodecClass::kLossless ||
                          options.kind == GossipKind::kDcd || options.kind == GossipKind::kEcd;
  if (needs_none || comm->world_size() == 1) return 1;
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
  std::unique_ptr<GossipExchange> exchange(new GossipExchange(comm, std::move(node)));
  exchange->step_ = options.step;
  return exchange;
}

GossipExchange::~GossipExchange() {
  (void)JoinServer();
  for (const auto& incoming : coming_) (void)incoming->Wait();  // only after an error
}

// Sends what the node says. The communicator copies the bytes.
Status GossipExchange::Deliver(const Result<GossipSends>& sends) {
  EQ_RETURN_IF_ERROR(sends.status());
  if (sends->empty()) return {};
  EQ_RETURN_IF_ERROR(FlushSent());
  for (const GossipSend& send : *sends) {
    sent_.push_back(comm_->Send(send.to, kGossipTag, send.bytes));
  }
  return {};
}

// Waits until the messages before have left: so no more than two rounds of them are in memory.
Status GossipExchange::FlushSent() {
  for (const auto& transfer : std::exchange(sent_, {})) {
    EQ_RETURN_IF_ERROR(transfer->Wait().status());
  }
  return {};
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
  const Result<GossipSends> sends = node_->OnMessage(incoming->from(), incoming->bytes());
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
    const Stopwatch decoding;
    if (status.ok()) status = Deliver(node_->OnMessage(incoming->from(), incoming->bytes()));
    stats_.decode_seconds += decoding.Seconds();
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

Status GossipExchange::Begin() {
  const std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(server_status_);
  for (const int peer : node_->SendersIn(node_->round())) {
    coming_.push_back(comm_->Receive(peer, kGossipTag, node_->MaxMessageBytes()));
  }
  EQ_RETURN_IF_ERROR(Deliver(node_->OnRound()));
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
  const Stopwatch encoding;
  const Result<GossipSends> sends = node_->OnMoved(moved);
  stats_.encode_seconds += encoding.Seconds();
  EQ_RETURN_IF_ERROR(Deliver(sends));
  // Who answers never waits here, so that its thread is not locked out.
  while (node_->is_waiting()) EQ_RETURN_IF_ERROR(TakeOne());
  ++rounds_;
  return {};
}

Status GossipExchange::Pause() {
  if (server_.joinable()) {
    comm_->SetActivity("waiting for its neighbours to come to an end");
    const Status status = JoinServer();
    server_ = {};
    EQ_RETURN_IF_ERROR(status);
  }
  EQ_RETURN_IF_ERROR(Deliver(node_->OnPause()));
  while (node_->is_owed()) EQ_RETURN_IF_ERROR(TakeOne());
  return FlushSent();
}

ReducerStats GossipExchange::TakeStats() {
  const std::lock_guard lock(mutex_);
  const GossipErrors errors = node_->TakeErrors();
  stats_.squared_error = errors.squared_error;
  stats_.squared_norm = errors.squared_norm;
  return std::exchange(stats_, {});
}

}  // namespace elastiquant
