#include "elastiquant/net/memory/memory_network.h"

#include <utility>

#include "elastiquant/net/memory/memory_hosts.h"
#include "elastiquant/net/memory/memory_store.h"

namespace elastiquant {

struct MemoryNetwork::Parts {
  explicit Parts(const MemoryFaults& faults)
      : hosts(std::make_shared<MemoryHosts>()),
        stores(std::make_shared<MemoryStores>(hosts)),
        wire(std::make_shared<MemoryWire>(hosts, faults)) {}

  const std::shared_ptr<MemoryHosts> hosts;
  const std::shared_ptr<MemoryStores> stores;
  const std::shared_ptr<MemoryWire> wire;
};

class MemoryNetwork::End final : public Network {
 public:
  End(std::shared_ptr<Parts> parts, int rank) : parts_(std::move(parts)), rank_(rank) {}

  Result<std::unique_ptr<StoreHost>> HostStore(uint16_t port, Reach) override {
    return parts_->stores->Host(rank_, port);
  }
  Result<std::unique_ptr<Store>> ConnectStore(const std::string&, uint16_t port,
                                              const std::string& prefix,
                                              std::chrono::milliseconds timeout) override {
    return parts_->stores->Connect(rank_, port, prefix, timeout);
  }
  Result<std::unique_ptr<Transport>> Connect(const TransportOptions& options) override {
    return MemoryWire::Connect(parts_->wire, options, rank_);
  }

 private:
  const std::shared_ptr<Parts> parts_;
  const int rank_;
};

MemoryNetwork::MemoryNetwork(const MemoryFaults& faults)
    : parts_(std::make_shared<Parts>(faults)) {}

MemoryNetwork::~MemoryNetwork() {
  std::lock_guard lock(parts_->hosts->mutex);
  parts_->hosts->closed = true;
  parts_->hosts->changed.notify_all();
}

std::shared_ptr<Network> MemoryNetwork::At(int rank) {
  return std::make_shared<End>(parts_, rank);
}

void MemoryNetwork::Kill(int rank) {
  std::lock_guard lock(parts_->hosts->mutex);
  parts_->hosts->dead.insert(rank);
  parts_->hosts->frozen.erase(rank);
  parts_->wire->Bury(rank);
  parts_->hosts->changed.notify_all();
}

void MemoryNetwork::Freeze(int rank) {
  std::lock_guard lock(parts_->hosts->mutex);
  parts_->hosts->frozen.insert(rank);
}

void MemoryNetwork::Thaw(int rank) {
  std::lock_guard lock(parts_->hosts->mutex);
  parts_->hosts->frozen.erase(rank);
  parts_->hosts->changed.notify_all();
}

void MemoryNetwork::Cut(int a, int b) {
  std::lock_guard lock(parts_->hosts->mutex);
  parts_->wire->Cut(a, b);
}

}  // namespace elastiquant
