// A network whose store is c10d's TCPStore.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "elastiquant/c10d/tcp_store.h"
#include "elastiquant/net/network.h"

namespace elastiquant {

// How the workers connect is left to a derived class. In C++ that takes Gloo's headers
// (gloo_network.h), which PyTorch's wheel lacks, so the Python package lets PyTorch's own
// Python connect them.
class TcpStoreNetwork : public Network {
 public:
  Result<std::unique_ptr<StoreHost>> HostStore(uint16_t port, Reach reach) override {
    return HostTcpStore(port, reach);
  }
  Result<std::unique_ptr<Store>> ConnectStore(const std::string& host, uint16_t port,
                                              const std::string& prefix,
                                              std::chrono::milliseconds timeout) override {
    return ConnectTcpStore(host, port, prefix, timeout);
  }
};

}  // namespace elastiquant
