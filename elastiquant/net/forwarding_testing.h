// A store and a network for tests to derive from: they do what the ones behind them do, but for
// what a test overrides.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/net/network.h"
#include "elastiquant/net/store.h"

namespace elastiquant {

class ForwardingStore : public Store {
 public:
  explicit ForwardingStore(std::unique_ptr<Store> store) : store_(std::move(store)) {}

  void SetPatience(std::chrono::milliseconds patience) override {
    store_->SetPatience(patience);
  }
  Status Set(const std::string& key, const std::string& value) override {
    return store_->Set(key, value);
  }
  Result<std::vector<std::string>> Get(const std::vector<std::string>& keys) override {
    return store_->Get(keys);
  }
  Result<bool> Exists(const std::string& key) override { return store_->Exists(key); }
  Result<int64_t> Increment(const std::string& key) override { return store_->Increment(key); }
  Result<std::string> CompareSet(const std::string& key, const std::string& expected,
                                 const std::string& desired) override {
    return store_->CompareSet(key, expected, desired);
  }
  Result<bool> WaitFor(const std::vector<std::string>& keys,
                       std::chrono::milliseconds timeout) override {
    return store_->WaitFor(keys, timeout);
  }

 private:
  const std::unique_ptr<Store> store_;
};

class ForwardingNetwork : public Network {
 public:
  explicit ForwardingNetwork(std::shared_ptr<Network> network) : network_(std::move(network)) {}

  Result<std::unique_ptr<StoreHost>> HostStore(uint16_t port, Reach reach) override {
    return network_->HostStore(port, reach);
  }
  Result<std::unique_ptr<Store>> ConnectStore(const std::string& host, uint16_t port,
                                              const std::string& prefix,
                                              std::chrono::milliseconds timeout) override {
    return network_->ConnectStore(host, port, prefix, timeout);
  }
  Result<std::unique_ptr<Transport>> Connect(const TransportOptions& options) override {
    return network_->Connect(options);
  }

 private:
  const std::shared_ptr<Network> network_;
};

}  // namespace elastiquant
