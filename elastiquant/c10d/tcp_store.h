// The store over TCP: c10d's TCPStore, which torchrun hosts as well.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/net/store.h"

namespace elastiquant {

// As Network::HostStore and Network::ConnectStore.
Result<std::unique_ptr<StoreHost>> HostTcpStore(uint16_t port, Reach reach);
Result<std::unique_ptr<Store>> ConnectTcpStore(const std::string& host, uint16_t port,
                                               const std::string& prefix,
                                               std::chrono::milliseconds timeout);

// Turns off what c10d logs: whatever it throws, stack traces included, for which this library
// has better words. For programs that are ours alone; TORCH_CPP_LOG_LEVEL keeps it as it says.
void KeepTorchQuiet();

}  // namespace elastiquant
