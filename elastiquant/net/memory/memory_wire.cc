#include "elastiquant/net/memory/memory_wire.h"

#include <algorithm>
#include <utility>

#include "elastiquant/base/random.h"

namespace elastiquant {

// What a posting waits for.
struct MemoryWire::Slot {
  std::span<uint8_t> room;  // of a receive
  int peer = kAnyPeer;
  bool done = false;
  bool abandoned = false;  // the posting is gone, and its room with it
  Status status;

  void Finish(Status with) {
    done = true;
    status = std::move(with);
  }
};

class MemoryWire::Waiting final : public Posting {
 public:
  Waiting(std::shared_ptr<MemoryHosts> hosts, std::shared_ptr<Slot> slot, int rank)
      : hosts_(std::move(hosts)), slot_(std::move(slot)), rank_(rank) {}
  ~Waiting() override {
    std::lock_guard lock(hosts_->mutex);
    slot_->abandoned = true;
  }

  Result<bool> WaitUntil(Deadline deadline) override {
    std::unique_lock lock(hosts_->mutex);
    const auto over = [&] {
      return slot_->done || hosts_->closed || hosts_->dead.contains(rank_);
    };
    if (deadline == kNoDeadline) {
      hosts_->changed.wait(lock, over);
    } else {
      hosts_->changed.wait_until(lock, deadline, over);
    }
    EQ_RETURN_IF_ERROR(hosts_->Live(lock, rank_));
    EQ_RETURN_IF_ERROR(slot_->status);
    return slot_->done;
  }
  void Abort() override {
    std::lock_guard lock(hosts_->mutex);
    if (!slot_->done) slot_->Finish(Unavailable("aborted"));
    hosts_->changed.notify_all();
  }
  int peer() const override {
    std::lock_guard lock(hosts_->mutex);
    return slot_->peer;
  }

 private:
  const std::shared_ptr<MemoryHosts> hosts_;
  const std::shared_ptr<Slot> slot_;
  const int rank_;
};

class MemoryWire::End final : public Transport {
 public:
  End(std::shared_ptr<MemoryWire> wire, std::string job, int rank, int host)
      : wire_(std::move(wire)), job_(std::move(job)), rank_(rank), host_(host) {}

  Result<std::unique_ptr<Posting>> Send(int to, uint32_t tag,
                                        std::span<const uint8_t> bytes) override {
    return Begin(to, [&] { return wire_->Post(job_, rank_, to, tag, bytes); });
  }
  Result<std::unique_ptr<Posting>> Receive(int from, uint32_t tag,
                                           std::span<uint8_t> bytes) override {
    return Begin(from, [&] { return wire_->Expect(job_, from, rank_, tag, bytes); });
  }

 private:
  Result<std::unique_ptr<Posting>> Begin(int peer, const auto& post) {
    MemoryHosts& hosts = *wire_->hosts_;
    std::unique_lock lock(hosts.mutex);
    EQ_RETURN_IF_ERROR(hosts.Live(lock, host_));
    if (hosts.dead.contains(wire_->HostOf(job_, peer)))
      return Unavailable("the connection was closed by the peer");
    auto slot = post();
    hosts.changed.notify_all();
    return std::unique_ptr<Posting>(
        std::make_unique<Waiting>(wire_->hosts_, std::move(slot), host_));
  }

  const std::shared_ptr<MemoryWire> wire_;
  const std::string job_;
  const int rank_, host_;
};

MemoryWire::MemoryWire(std::shared_ptr<MemoryHosts> hosts, const MemoryFaults& faults)
    : hosts_(std::move(hosts)), faults_(faults), deliverer_([this] { Deliver(); }) {}

MemoryWire::~MemoryWire() { deliverer_.join(); }

std::unique_ptr<Transport> MemoryWire::Connect(std::shared_ptr<MemoryWire> wire,
                                               const TransportOptions& options, int host) {
  {
    const std::lock_guard lock(wire->hosts_->mutex);
    wire->host_of_[{options.store_prefix, options.rank}] = host;
  }
  return std::make_unique<End>(std::move(wire), options.store_prefix, options.rank, host);
}

int MemoryWire::HostOf(const std::string& job, int rank, int otherwise) const {
  const auto host = host_of_.find({job, rank});
  return host == host_of_.end() ? otherwise : host->second;
}

bool MemoryWire::IsCut(const std::string& job, int a, int b) const {
  const int first = HostOf(job, a, a), second = HostOf(job, b, b);
  return cut_.contains({std::min(first, second), std::max(first, second)});
}

// A message of its own is complete at once: its bytes are with the network.
std::shared_ptr<MemoryWire::Slot> MemoryWire::Post(const std::string& job, int from, int to,
                                                   uint32_t tag,
                                                   std::span<const uint8_t> bytes) {
  auto slot = std::make_shared<Slot>();
  slot->peer = to;
  slot->Finish({});
  if (IsCut(job, from, to)) return slot;
  const Box box{job, from, to, tag};
  std::vector<uint8_t> copy(bytes.begin(), bytes.end());
  const Clock::time_point arrival = Arrival({from, to});
  if (flights_.empty() && arrival <= Clock::now()) {
    Arrive(box, std::move(copy));
  } else {
    flights_.emplace(arrival, Flight{box, std::move(copy)});
  }
  return slot;
}

std::shared_ptr<MemoryWire::Slot> MemoryWire::Expect(const std::string& job, int from, int to,
                                                     uint32_t tag, std::span<uint8_t> room) {
  auto slot = std::make_shared<Slot>();
  slot->room = room;
  slot->peer = from;
  const bool any = from == kAnyPeer;
  auto* arrived = any ? Earliest({job, to, tag}, &from) : &arrived_[{job, from, to, tag}];
  if (arrived != nullptr && !arrived->empty()) {
    Fill(*slot, from, arrived->front().bytes);
    arrived->pop_front();
  } else if (any) {
    expected_from_any_[{job, to, tag}].push_back(slot);
  } else {
    expected_[{job, from, to, tag}].push_back(slot);
  }
  return slot;
}

// The messages of the peer that has waited longest to be received, or null if there is none.
std::deque<MemoryWire::Arrived>* MemoryWire::Earliest(const AnyBox& box, int* from) {
  std::deque<Arrived>* earliest = nullptr;
  for (auto& [sender, arrived] : arrived_) {
    const auto& [job, rank, to, tag] = sender;
    if (AnyBox(job, to, tag) != box || arrived.empty()) continue;
    if (earliest != nullptr && earliest->front().number < arrived.front().number) continue;
    earliest = &arrived;
    *from = rank;
  }
  return earliest;
}

MemoryWire::Clock::time_point MemoryWire::Arrival(Pair pair) {
  const uint64_t number = posted_[pair]++;
  const LaneKeys keys =
      MakeLaneKeys(DeriveKey(faults_.seed, number, static_cast<uint64_t>(pair.first),
                             static_cast<uint64_t>(pair.second)));
  const auto spread = static_cast<double>((faults_.most_delay - faults_.least_delay).count());
  const auto extra = static_cast<double>(UniformFloat(RandomBits(keys, 0))) * spread;
  Clock::time_point arrival = Clock::now() + faults_.least_delay +
                              std::chrono::microseconds(static_cast<int64_t>(extra));
  if (static_cast<double>(UniformFloat(RandomBits(keys, 1))) < faults_.loss) {
    arrival += faults_.retransmission;
  }
  Clock::time_point& last = last_arrival_[pair];
  last = std::max(last, arrival);
  return last;
}

void MemoryWire::Arrive(const Box& box, std::vector<uint8_t> bytes) {
  const auto& [job, from, to, tag] = box;
  std::shared_ptr<Slot> slot = TakeWaiting(expected_[box]);
  if (slot == nullptr) slot = TakeWaiting(expected_from_any_[{job, to, tag}]);
  if (slot == nullptr) {
    arrived_[box].push_back({arrivals_++, std::move(bytes)});
  } else {
    Fill(*slot, from, bytes);
  }
}

// Takes the first receive that has not been given up, or returns null.
std::shared_ptr<MemoryWire::Slot> MemoryWire::TakeWaiting(
    std::deque<std::shared_ptr<Slot>>& slots) {
  while (!slots.empty()) {
    std::shared_ptr<Slot> slot = std::move(slots.front());
    slots.pop_front();
    if (!slot->abandoned && !slot->done) return slot;
  }
  return nullptr;
}

void MemoryWire::Fill(Slot& slot, int from, const std::vector<uint8_t>& bytes) {
  slot.peer = from;
  if (bytes.size() > slot.room.size()) {
    slot.Finish(Unavailable("a message of " + std::to_string(bytes.size()) +
                            " bytes came where there is room for " +
                            std::to_string(slot.room.size())));
    return;
  }
  std::ranges::copy(bytes, slot.room.begin());
  slot.Finish({});
}

void MemoryWire::Deliver() {
  std::unique_lock lock(hosts_->mutex);
  while (!hosts_->closed) {
    if (flights_.empty()) {
      hosts_->changed.wait(lock);
      continue;
    }
    const Clock::time_point next = flights_.begin()->first;
    if (Clock::now() < next) {
      hosts_->changed.wait_until(lock, next);
      continue;
    }
    Flight flight = std::move(flights_.begin()->second);
    flights_.erase(flights_.begin());
    Arrive(flight.box, std::move(flight.bytes));
    hosts_->changed.notify_all();
  }
}

void MemoryWire::Bury(int host) {
  const auto is_of = [&](const Box& box, int rank) {
    return HostOf(std::get<0>(box), rank) == host;
  };
  std::erase_if(flights_, [&](const auto& flight) {
    const Box& box = flight.second.box;
    return is_of(box, std::get<1>(box)) || is_of(box, std::get<2>(box));
  });
  for (auto& [box, slots] : expected_) {
    if (!is_of(box, std::get<1>(box))) continue;
    for (const auto& slot : slots) {
      if (!slot->done) slot->Finish(Unavailable("the connection was closed by the peer"));
    }
    slots.clear();
  }
}

void MemoryWire::Cut(int a, int b) { cut_.insert({std::min(a, b), std::max(a, b)}); }

}  // namespace elastiquant
