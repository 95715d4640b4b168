#include "elastiquant/net/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <utility>

#include "elastiquant/net/failed_transfer.h"
#include "elastiquant/net/ledger.h"
#include "elastiquant/net/link.h"
#include "elastiquant/net/liveness.h"
#include "elastiquant/net/lone_communicator.h"
#include "elastiquant/net/message.h"
#include "elastiquant/net/network.h"
#include "elastiquant/net/rendezvous.h"
#include "elastiquant/net/store.h"
#include "elastiquant/net/transport.h"
#include "elastiquant/net/uplink.h"

namespace elastiquant {
namespace {

constexpr uint32_t kTagEnd = 1u << 24;
constexpr uint32_t kAllGatherTag = kTagEnd;
constexpr uint32_t kBroadcastTag = kTagEnd + 1;

// Gloo writes to its sockets without MSG_NOSIGNAL, so the death of a peer would kill us
// unheard. (Python ignores the signal for every program that it runs.)
void IgnoreBrokenPipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    std::signal(SIGPIPE, SIG_IGN);
  }
}

class NetworkCommunicator final : public Communicator {
 public:
  explicit NetworkCommunicator(CommunicatorOptions options) : options_(std::move(options)) {}
  ~NetworkCommunicator() override;
  Status Connect();

  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.world_size; }
  WorkerNames names() const override { return options_.names; }
  std::unique_ptr<Transfer> Send(int to, uint32_t tag, std::span<const uint8_t> bytes,
                                 uint16_t metric) override;
  std::unique_ptr<Incoming> Receive(int from, uint32_t tag, size_t room) override;
  Status Barrier() override { return AllGather(0).status(); }
  Result<std::vector<uint64_t>> AllGather(uint64_t value) override;
  Status Broadcast(int root, std::span<uint8_t> bytes) override;
  Result<uint64_t> TakeNumber() override;
  Traffic traffic() const override;
  size_t peak_buffer_bytes() const override { return buffers_.peak_bytes(); }
  void SetActivity(std::string activity) override {
    liveness_->SetActivity(std::move(activity));
  }
  void SetFarewell(std::string why) override { liveness_->SetFarewell(std::move(why)); }
  std::optional<int> lost_rank() const override { return liveness_->culprit(); }
  void Abort(const Status& why) override;

 private:
  class SendTransfer;
  class ReceiveTransfer;

  std::string StoreName() const;
  std::string Prefix() const { return "elastiquant/" + options_.job + "/"; }
  void OnLost(const Status& verdict);
  Status Begin(int peer, Way way);
  Status CheckPeer(int peer, uint32_t tag, size_t size) const;
  static Status CheckMessage(uint32_t tag, size_t size);
  Status PeerError(int peer, const Status& status);
  // The control plane: past the uplink, not counted.
  struct Control {
    int peer;
    std::span<uint8_t> to;  // empty: sent
    std::unique_ptr<Incoming> incoming;
    std::unique_ptr<Transfer> outgoing;
  };
  Control SendControl(int to, uint32_t tag, std::span<const uint8_t> bytes);
  Control ReceiveControl(int from, uint32_t tag, std::span<uint8_t> bytes);
  Status AwaitControl(std::vector<Control> messages) const;
  std::optional<LinkTime> ReserveDownlink(int from, const MessageHeader& header);
  bool AwaitDownlink(std::optional<LinkTime> release, Deadline deadline);

  const CommunicatorOptions options_;
  // Destroyed from the last to the first.
  std::shared_ptr<StoreHost> store_host_;
  // For numbers alone: liveness has a connection of its own, which must never wait for others.
  std::mutex numbers_mutex_;
  std::unique_ptr<Store> numbers_;  // once one was taken
  const std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>(options_.world_size);
  std::shared_ptr<Liveness> liveness_;
  BufferPool buffers_;
  Flights flights_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Uplink> uplink_;

  std::atomic<uint64_t> bytes_up_{0};
  std::atomic<uint64_t> bytes_down_{0};
  std::mutex downlink_mutex_;
  std::condition_variable downlink_changed_;
  LinkTimeline downlink_;
  bool aborted_ = false;
};

// A transfer's lines in the ledger.
class Entry {
 public:
  Entry(std::shared_ptr<Ledger> ledger, int peer, Way way)
      : ledger_(std::move(ledger)), peer_(peer), way_(way) {}
  ~Entry() { End(kAnyPeer); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  auto Wait(const auto& wait) {
    ledger_->BeginWait(peer_);
    auto result = wait();
    ledger_->EndWait(peer_);
    return result;
  }
  void End(int came_from) {
    if (ledger_) std::exchange(ledger_, nullptr)->End(peer_, way_, came_from);
  }

 private:
  std::shared_ptr<Ledger> ledger_;  // until the end
  const int peer_;
  const Way way_;
};

class NetworkCommunicator::SendTransfer final : public Transfer {
 public:
  SendTransfer(NetworkCommunicator* comm, int to, size_t size,
               std::shared_ptr<OutgoingMessage> message)
      : comm_(comm),
        to_(to),
        size_(size),
        message_(std::move(message)),
        entry_(comm->ledger_, to, Way::kSend) {
    comm_->flights_.Add(message_.get());
  }
  ~SendTransfer() override { comm_->flights_.Remove(message_.get()); }

  Result<size_t> Wait() override {
    const Status s = entry_.Wait([&] { return message_->Complete(); });
    entry_.End(to_);
    if (!s.ok()) return comm_->PeerError(to_, s);
    return size_;
  }

 private:
  NetworkCommunicator* const comm_;
  const int to_;
  const size_t size_;
  const std::shared_ptr<OutgoingMessage> message_;
  Entry entry_;
};

class NetworkCommunicator::ReceiveTransfer final : public Incoming {
 public:
  ReceiveTransfer(NetworkCommunicator* comm, int from, uint32_t tag, size_t room, bool is_data)
      : comm_(comm),
        from_(from),
        is_data_(is_data),
        message_(*comm->transport_, from, tag, room, comm->buffers_),
        entry_(comm->ledger_, from, Way::kReceive) {
    comm_->flights_.Add(&message_);
  }
  ~ReceiveTransfer() override { comm_->flights_.Remove(&message_); }

  Result<size_t> Wait() override {
    EQ_RETURN_IF_ERROR(WaitUntil(kNoDeadline).status());
    return static_cast<size_t>(header_->size);
  }
  Result<bool> WaitUntil(Deadline deadline) override {
    EQ_RETURN_IF_ERROR(failure_);
    if (!header_) EQ_RETURN_IF_ERROR(Complete(deadline));
    return header_ && comm_->AwaitDownlink(release_, deadline);
  }
  std::span<const uint8_t> bytes() const override { return message_.bytes(); }
  int from() const override { return from_ == kAnyPeer ? message_.from() : from_; }
  uint16_t metric() const override { return header_->metric; }

 private:
  // Takes the header and the downlink's time, if the message is there by the deadline.
  Status Complete(Deadline deadline) {
    auto header = entry_.Wait([&] { return message_.CompleteUntil(deadline); });
    if (!header.ok()) {
      entry_.End(kAnyPeer);
      return failure_ = comm_->PeerError(from_, header.status());
    }
    header_ = *header;
    if (!header_) return {};
    entry_.End(from());
    if (is_data_) {
      comm_->bytes_down_ += kMessageHeaderBytes + header_->size;
      release_ = comm_->ReserveDownlink(from(), *header_);
    }
    return {};
  }

  NetworkCommunicator* const comm_;
  const int from_;
  const bool is_data_;  // counted, and slowed by an emulated link
  IncomingMessage message_;
  Entry entry_;
  Status failure_;
  std::optional<MessageHeader> header_;  // once it has come
  std::optional<LinkTime> release_;      // when the emulated link has carried it
};

std::string NetworkCommunicator::StoreName() const {
  return "the rendezvous store at " + options_.store_host + ":" +
         std::to_string(options_.store_port);
}

Status NetworkCommunicator::Connect() {
  const std::string prefix = Prefix();
  store_host_ = options_.store;
  if (options_.rank == 0 && !options_.store_is_external && store_host_ == nullptr) {
    // Before the others come, only the address tells where they can be.
    EQ_ASSIGN_OR_RETURN(store_host_, options_.network->HostStore(options_.store_port,
                                                                 ReachOf(options_.store_host)));
  }
  EQ_ASSIGN_OR_RETURN(const std::shared_ptr<Store> store,
                      options_.network->ConnectStore(options_.store_host, options_.store_port,
                                                     prefix, options_.connect_timeout));
  EQ_ASSIGN_OR_RETURN(const Meeting meeting, Rendezvous(store, options_));
  store->SetPatience(options_.timeout);

  LivenessOptions liveness;
  liveness.rank = options_.rank;
  liveness.world_size = options_.world_size;
  liveness.timeout = options_.timeout;
  liveness.stall_timeout = options_.stall_timeout;
  liveness.rank_0_hosts_store = !options_.store_is_external;
  liveness.store_name = StoreName();
  liveness.names = options_.names;
  liveness.ledger = ledger_;
  liveness.on_lost = [this](const Status& verdict) { OnLost(verdict); };
  liveness_ = Liveness::Start(store, liveness);

  auto transport = options_.network->Connect(
      {options_.rank, options_.world_size, options_.store_host, options_.store_port,
       prefix + "gloo/", options_.connect_timeout, meeting.one_machine});
  if (!transport.ok()) {
    liveness_->Fail(transport.status());
    return transport.status();
  }
  transport_ = std::move(*transport);
  uplink_ = std::make_unique<Uplink>(transport_.get(), options_.link, options_.wires);
  return {};
}

NetworkCommunicator::~NetworkCommunicator() {
  // Connections stay open until nobody needs them: a closed one looks like a death.
  if (liveness_) liveness_->Leave();
}

void NetworkCommunicator::OnLost(const Status& verdict) {
  if (options_.on_peer_lost) {
    options_.on_peer_lost(verdict);
  } else {
    std::fprintf(stderr, "elastiquant: %s stops: %s\n", options_.names(options_.rank).c_str(),
                 verdict.message().c_str());
    std::fflush(stderr);
    _exit(3);
  }
  flights_.AbortAll();
  std::lock_guard lock(downlink_mutex_);
  aborted_ = true;
  downlink_changed_.notify_all();
}

Status NetworkCommunicator::Begin(int peer, Way way) {
  return ledger_->Begin(peer, way) ? Status() : liveness_->HostHasLeft();
}

Status NetworkCommunicator::CheckPeer(int peer, uint32_t tag, size_t size) const {
  if (peer < 0 || peer >= options_.world_size || peer == options_.rank) {
    return InvalidArgument("rank " + std::to_string(options_.rank) + " of " +
                           std::to_string(options_.world_size) + " has no peer at rank " +
                           std::to_string(peer));
  }
  return CheckMessage(tag, size);
}

Status NetworkCommunicator::CheckMessage(uint32_t tag, size_t size) {
  if (tag >= kTagEnd) {
    return InvalidArgument("tag " + std::to_string(tag) + " is not below " +
                           std::to_string(kTagEnd));
  }
  if (size == 0) return InvalidArgument("a message needs at least one byte");
  return {};
}

Status NetworkCommunicator::PeerError(int peer, const Status& status) {
  if (status.code() != StatusCode::kUnavailable) return status;
  return peer == kAnyPeer ? liveness_->Explain(status.message())
                          : liveness_->Blame(peer, status.message());
}

std::unique_ptr<Transfer> NetworkCommunicator::Send(int to, uint32_t tag,
                                                    std::span<const uint8_t> bytes,
                                                    uint16_t metric) {
  Status s = CheckPeer(to, tag, bytes.size());
  if (s.ok()) s = Begin(to, Way::kSend);
  if (!s.ok()) return std::make_unique<FailedTransfer>(s);
  auto message = std::make_shared<OutgoingMessage>(to, tag, bytes, metric, buffers_);
  auto transfer = std::make_unique<SendTransfer>(this, to, bytes.size(), message);
  bytes_up_ += message->wire_size();
  uplink_->Send(to, std::move(message));
  return transfer;
}

std::unique_ptr<Incoming> NetworkCommunicator::Receive(int from, uint32_t tag, size_t room) {
  Status s = from == kAnyPeer ? CheckMessage(tag, room) : CheckPeer(from, tag, room);
  if (s.ok()) s = Begin(from, Way::kReceive);
  if (!s.ok()) return std::make_unique<FailedTransfer>(s);
  return std::make_unique<ReceiveTransfer>(this, from, tag, room, /*is_data=*/true);
}

// A message that came at t kept the downlink busy until one frame later, unless others came
// with it. What comes by a wire has been on it all the way.
std::optional<LinkTime> NetworkCommunicator::ReserveDownlink(int from,
                                                             const MessageHeader& header) {
  if (!options_.link || options_.wires.contains(from)) return {};
  const uint64_t size = kMessageHeaderBytes + header.size;
  const auto duration = WireTime(*options_.link, size);
  // A sender whose clock is ahead of ours cannot make the message come later than it did.
  const LinkTime arrival = std::min(LinkTime(std::chrono::nanoseconds(header.arrival_ns)),
                                    LinkTime(LinkClock::now()));
  std::lock_guard lock(downlink_mutex_);
  return downlink_.Reserve(arrival - duration + FrameTime(*options_.link, size), duration);
}

// Returns whether the link has carried the message by the deadline.
bool NetworkCommunicator::AwaitDownlink(std::optional<LinkTime> release, Deadline deadline) {
  if (!release) return true;
  const auto left = *release - LinkClock::now();
  const bool in_time = deadline == kNoDeadline || Deadline::clock::now() + left <= deadline;
  std::unique_lock lock(downlink_mutex_);
  const auto aborted = [&] { return aborted_; };
  if (!in_time) {
    downlink_changed_.wait_until(lock, deadline, aborted);
  } else if (left.count() > 0) {
    downlink_changed_.wait_until(lock, *release, aborted);
  }
  return in_time;
}

NetworkCommunicator::Control NetworkCommunicator::SendControl(int to, uint32_t tag,
                                                              std::span<const uint8_t> bytes) {
  if (Status s = Begin(to, Way::kSend); !s.ok()) {
    return {to, {}, nullptr, std::make_unique<FailedTransfer>(s)};
  }
  auto message = std::make_shared<OutgoingMessage>(to, tag, bytes, /*metric=*/0, buffers_);
  auto transfer = std::make_unique<SendTransfer>(this, to, bytes.size(), message);
  message->Post(*transport_, LinkTime{});
  return {to, {}, nullptr, std::move(transfer)};
}

NetworkCommunicator::Control NetworkCommunicator::ReceiveControl(int from, uint32_t tag,
                                                                 std::span<uint8_t> bytes) {
  if (Status s = Begin(from, Way::kReceive); !s.ok()) {
    return {from, bytes, std::make_unique<FailedTransfer>(s), nullptr};
  }
  auto transfer =
      std::make_unique<ReceiveTransfer>(this, from, tag, bytes.size(), /*is_data=*/false);
  return {from, bytes, std::move(transfer), nullptr};
}

Status NetworkCommunicator::AwaitControl(std::vector<Control> messages) const {
  for (Control& message : messages) {
    if (message.incoming == nullptr) {
      EQ_RETURN_IF_ERROR(message.outgoing->Wait().status());
      continue;
    }
    EQ_ASSIGN_OR_RETURN(const size_t size, message.incoming->Wait());
    if (size != message.to.size()) {
      return Internal(options_.names(message.peer) + " sent " + std::to_string(size) +
                      " bytes in a collective call, not " + std::to_string(message.to.size()) +
                      ": the workers do not make the same sequence of calls");
    }
    std::ranges::copy(message.incoming->bytes(), message.to.begin());
  }
  return {};
}

Result<std::vector<uint64_t>> NetworkCommunicator::AllGather(uint64_t value) {
  static_assert(std::endian::native == std::endian::little, "as all numbers on the wire are");
  const auto bytes = [](uint64_t& v) {
    return std::span<uint8_t>(reinterpret_cast<uint8_t*>(&v), sizeof(v));
  };
  std::vector<uint64_t> values(static_cast<size_t>(options_.world_size), value);
  std::vector<Control> messages;
  for (int r = 0; r < options_.world_size; ++r) {
    if (r == options_.rank) continue;
    messages.push_back(ReceiveControl(r, kAllGatherTag, bytes(values[static_cast<size_t>(r)])));
    messages.push_back(SendControl(r, kAllGatherTag, bytes(value)));
  }
  EQ_RETURN_IF_ERROR(AwaitControl(std::move(messages)));
  return values;
}

Status NetworkCommunicator::Broadcast(int root, std::span<uint8_t> bytes) {
  if (root < 0 || root >= options_.world_size) {
    return InvalidArgument("no worker " + std::to_string(root) + " to broadcast from");
  }
  if (bytes.empty()) return {};
  std::vector<Control> messages;
  if (options_.rank != root) {
    messages.push_back(ReceiveControl(root, kBroadcastTag, bytes));
  } else {
    for (int r = 0; r < options_.world_size; ++r) {
      if (r != root) messages.push_back(SendControl(r, kBroadcastTag, bytes));
    }
  }
  return AwaitControl(std::move(messages));
}

Result<uint64_t> NetworkCommunicator::TakeNumber() {
  const std::lock_guard lock(numbers_mutex_);
  if (numbers_ == nullptr) {
    EQ_ASSIGN_OR_RETURN(numbers_,
                        options_.network->ConnectStore(options_.store_host, options_.store_port,
                                                       Prefix(), options_.connect_timeout));
    numbers_->SetPatience(options_.timeout);
  }
  EQ_ASSIGN_OR_RETURN(const int64_t taken, numbers_->Increment("numbers"));
  return static_cast<uint64_t>(taken - 1);
}

Traffic NetworkCommunicator::traffic() const {
  return {bytes_up_, bytes_down_, uplink_->busy_seconds()};
}

void NetworkCommunicator::Abort(const Status& why) {
  liveness_->Fail(why);
  flights_.AbortAll();
  std::lock_guard lock(downlink_mutex_);
  aborted_ = true;
  downlink_changed_.notify_all();
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::Connect(
    const CommunicatorOptions& options) {
  if (options.world_size < 1) {
    return InvalidArgument("the world size must be at least 1, not " +
                           std::to_string(options.world_size));
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    return InvalidArgument("rank " + std::to_string(options.rank) + " is not in 0.." +
                           std::to_string(options.world_size - 1) + " (world size " +
                           std::to_string(options.world_size) + ")");
  }
  if (options.timeout < std::chrono::seconds(1)) {
    return InvalidArgument("the time-out for lost workers must be at least 1 s");
  }
  if (options.stall_timeout < std::chrono::seconds(0)) {
    return InvalidArgument("the time-out for stuck workers must not be negative");
  }
  if (options.world_size == 1) {
    return std::unique_ptr<Communicator>(std::make_unique<LoneCommunicator>());
  }
  if (options.network == nullptr) {
    return InvalidArgument("workers on a network need CommunicatorOptions::network");
  }
  if (options.store_port == 0) {
    return InvalidArgument("the workers need a port to meet at: give one from 1 to 65535");
  }
  IgnoreBrokenPipes();
  auto comm = std::make_unique<NetworkCommunicator>(options);
  EQ_RETURN_IF_ERROR(comm->Connect());
  return std::unique_ptr<Communicator>(std::move(comm));
}

}  // namespace elastiquant
