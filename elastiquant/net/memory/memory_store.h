// The stores of a network in memory, by port: the half of MemoryNetwork in which workers meet.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/net/memory/memory_hosts.h"
#include "elastiquant/net/store.h"

namespace elastiquant {

// All stores of one MemoryNetwork.
class MemoryStores : public std::enable_shared_from_this<MemoryStores> {
 public:
  explicit MemoryStores(std::shared_ptr<MemoryHosts> hosts) : hosts_(std::move(hosts)) {}

  // Do what Network::HostStore and Network::ConnectStore do, for the worker `rank`. A store
  // dies, and stands still, with its host.
  Result<std::unique_ptr<StoreHost>> Host(int rank, uint16_t port);
  Result<std::unique_ptr<Store>> Connect(int rank, uint16_t port, const std::string& prefix,
                                         std::chrono::milliseconds timeout);

 private:
  class Connection;
  class Hosted;
  struct Table {
    int host = kUnnamedHost;
    std::map<std::string, std::string> values;
  };

  const std::shared_ptr<MemoryHosts> hosts_;
  std::map<uint16_t, std::shared_ptr<Table>> tables_;  // those that are hosted now
  uint16_t next_port_ = 1;
};

}  // namespace elastiquant
