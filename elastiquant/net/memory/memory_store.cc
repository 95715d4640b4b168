#include "elastiquant/net/memory/memory_store.h"

#include <algorithm>
#include <utility>

namespace elastiquant {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

}  // namespace

class MemoryStores::Hosted final : public StoreHost {
 public:
  Hosted(std::shared_ptr<MemoryStores> stores, uint16_t port)
      : stores_(std::move(stores)), port_(port) {}
  ~Hosted() override {
    std::lock_guard lock(stores_->hosts_->mutex);
    stores_->tables_.erase(port_);
    stores_->hosts_->changed.notify_all();
  }
  uint16_t port() const override { return port_; }

 private:
  const std::shared_ptr<MemoryStores> stores_;
  const uint16_t port_;
};

class MemoryStores::Connection final : public Store {
 public:
  Connection(std::shared_ptr<MemoryStores> stores, std::shared_ptr<Table> table, int rank,
             uint16_t port, std::string prefix)
      : stores_(std::move(stores)),
        table_(std::move(table)),
        rank_(rank),
        port_(port),
        prefix_(std::move(prefix)) {}

  void SetPatience(milliseconds) override {}
  Status Set(const std::string& key, const std::string& value) override {
    return Call([&](auto& values) { values[prefix_ + key] = value; });
  }
  Result<std::vector<std::string>> Get(const std::vector<std::string>& keys) override {
    std::vector<std::string> found;
    EQ_RETURN_IF_ERROR(Call([&](auto& values) {
      for (const std::string& key : keys) {
        const auto entry = values.find(prefix_ + key);
        if (entry != values.end()) found.push_back(entry->second);
      }
    }));
    if (found.size() != keys.size()) return Unavailable("the store lacks a key");
    return found;
  }
  Result<bool> Exists(const std::string& key) override {
    bool exists = false;
    EQ_RETURN_IF_ERROR(Call([&](auto& values) { exists = values.contains(prefix_ + key); }));
    return exists;
  }
  Result<int64_t> Increment(const std::string& key) override {
    int64_t count = 0;
    EQ_RETURN_IF_ERROR(Call([&](auto& values) {
      std::string& value = values[prefix_ + key];
      count = (value.empty() ? 0 : std::stoll(value)) + 1;
      value = std::to_string(count);
    }));
    return count;
  }
  Result<std::string> CompareSet(const std::string& key, const std::string& expected,
                                 const std::string& desired) override {
    std::string value;
    EQ_RETURN_IF_ERROR(Call([&](auto& values) {
      const auto entry = values.find(prefix_ + key);
      value = entry == values.end() ? "" : entry->second;
      if (value != expected) return;
      value = desired;
      values[prefix_ + key] = desired;
    }));
    return value;
  }
  Result<bool> WaitFor(const std::vector<std::string>& keys, milliseconds timeout) override {
    const auto deadline = Clock::now() + timeout;
    bool exist = false;
    MemoryHosts& hosts = *stores_->hosts_;
    std::unique_lock lock(hosts.mutex);
    for (;;) {
      EQ_RETURN_IF_ERROR(Reach(lock));
      exist = std::ranges::all_of(
          keys, [&](const std::string& key) { return table_->values.contains(prefix_ + key); });
      if (exist || Clock::now() >= deadline) return exist;
      hosts.changed.wait_until(lock, deadline);
    }
  }

 private:
  // Returns when both ends of the connection run, or with an error when one of them is gone.
  // Like c10d's, a call waits without limit for a store whose process is frozen.
  Status Reach(std::unique_lock<std::mutex>& lock) {
    MemoryHosts& hosts = *stores_->hosts_;
    for (;;) {
      EQ_RETURN_IF_ERROR(hosts.Live(lock, rank_));
      const auto entry = stores_->tables_.find(port_);
      if (entry == stores_->tables_.end() || entry->second != table_ ||
          hosts.dead.contains(table_->host)) {
        return Unavailable("the rendezvous store failed: its connection was closed");
      }
      if (!hosts.frozen.contains(table_->host)) return {};
      hosts.changed.wait(lock);
    }
  }
  Status Call(const auto& call) {
    std::unique_lock lock(stores_->hosts_->mutex);
    EQ_RETURN_IF_ERROR(Reach(lock));
    call(table_->values);
    stores_->hosts_->changed.notify_all();
    return {};
  }

  const std::shared_ptr<MemoryStores> stores_;
  const std::shared_ptr<Table> table_;
  const int rank_;
  const uint16_t port_;
  const std::string prefix_;
};

Result<std::unique_ptr<StoreHost>> MemoryStores::Host(int rank, uint16_t port) {
  std::unique_lock lock(hosts_->mutex);
  EQ_RETURN_IF_ERROR(hosts_->Live(lock, rank));
  if (port == 0) {
    while (tables_.contains(next_port_)) ++next_port_;
    port = next_port_;
  }
  auto table = std::make_shared<Table>();
  table->host = rank;
  if (!tables_.emplace(port, std::move(table)).second) {
    return Unavailable("port " + std::to_string(port) + " is in use on this network");
  }
  hosts_->changed.notify_all();
  return std::unique_ptr<StoreHost>(std::make_unique<Hosted>(shared_from_this(), port));
}

Result<std::unique_ptr<Store>> MemoryStores::Connect(int rank, uint16_t port,
                                                     const std::string& prefix,
                                                     milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::unique_lock lock(hosts_->mutex);
  for (;;) {
    EQ_RETURN_IF_ERROR(hosts_->Live(lock, rank));
    const auto entry = tables_.find(port);
    if (entry != tables_.end() && !hosts_->dead.contains(entry->second->host)) {
      return std::unique_ptr<Store>(
          std::make_unique<Connection>(shared_from_this(), entry->second, rank, port, prefix));
    }
    if (hosts_->changed.wait_until(lock, deadline) == std::cv_status::timeout) {
      return Unavailable("no rendezvous store at port " + std::to_string(port) + " within " +
                         std::to_string(timeout.count() / 1000) +
                         " s: is worker 0 running, and the port right?");
    }
  }
}

}  // namespace elastiquant
