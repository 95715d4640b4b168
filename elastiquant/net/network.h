// A network connects the workers of a job: it provides the store in which they meet, and the
// transport between them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/net/store.h"
#include "elastiquant/net/transport.h"

namespace elastiquant {

// Thread-safe. What it makes may outlive it. c10d implements it over TCP, and MemoryNetwork in
// memory.
class Network {
 public:
  virtual ~Network() = default;

  // Starts a store on this machine. If the port is 0, takes a free one.
  virtual Result<std::unique_ptr<StoreHost>> HostStore(uint16_t port, Reach reach) = 0;
  // Connects to a store. Its keys are kept apart from those of other jobs on the store by
  // `prefix`. Fails with kUnavailable after the timeout, with a message that says where there
  // is no store.
  virtual Result<std::unique_ptr<Store>> ConnectStore(const std::string& host, uint16_t port,
                                                      const std::string& prefix,
                                                      std::chrono::milliseconds timeout) = 0;
  // Connects all pairs of workers; every rank of the job must call it.
  virtual Result<std::unique_ptr<Transport>> Connect(const TransportOptions& options) = 0;
};

}  // namespace elastiquant
