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

// Makes this process wait for name servers for 2 s, as long as RES_OPTIONS is not set:
// PyTorch's store looks up the name of each address that connects to it, only to log it. Where
// no name server answers, as on an isolated network, the C library waits 10 s for each name,
// and a run begins 20 s late. With this it begins 4 s late. To be called before anything looks
// up a name.
void WaitBrieflyForNames();

}  // namespace elastiquant
