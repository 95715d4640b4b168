// The store over TCP: c10d's TCPStore, which torchrun hosts as well.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/net/store.h"

namespace elastiquant {

// Do what Network::HostStore and Network::ConnectStore do.
Result<std::unique_ptr<StoreHost>> HostTcpStore(uint16_t port, Reach reach);
Result<std::unique_ptr<Store>> ConnectTcpStore(const std::string& host, uint16_t port,
                                               const std::string& prefix,
                                               std::chrono::milliseconds timeout);

// Turns off what c10d logs: it logs whatever it throws, stack traces included, for which this
// library has better words. This is for programs that are ours alone. If TORCH_CPP_LOG_LEVEL is
// set, that stands.
void KeepTorchQuiet();

}  // namespace elastiquant
