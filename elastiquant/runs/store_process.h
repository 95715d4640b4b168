// The workers' store in a process of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Hosts a store that this machine alone can reach, until this is destroyed or the process that
// started it dies. A store answers from threads, so one that forks workers (forked_process.h)
// must not host it itself.
class StoreProcess {
 public:
  // Returns when the store listens at `port`, or at a free one if that is 0. Fails as
  // HostTcpStore does (c10d/tcp_store.h).
  static Result<StoreProcess> Start(uint16_t port);

  StoreProcess(StoreProcess&& other) noexcept;
  StoreProcess& operator=(StoreProcess&&) = delete;
  ~StoreProcess();

  uint16_t port() const { return port_; }

 private:
  StoreProcess(pid_t pid, uint16_t port) : pid_(pid), port_(port) {}

  pid_t pid_;  // -1: moved from
  uint16_t port_;
};

}  // namespace elastiquant
