// Point-to-point messages between the workers of one job, with errors as values. This is all
// that the floors above ask of a network: PyTorch's Gloo carries the messages in production
// (c10d), and this process's own memory does in tests (memory_network.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "elastiquant/base/status.h"

namespace elastiquant {

// A message that has been posted. Wait() returns when it has been sent or has come, and may be
// called once. Abort() makes it return, and may be called from any thread.
class Posting {
 public:
  virtual ~Posting() = default;
  virtual Status Wait() = 0;
  virtual void Abort() = 0;
};

// One worker's connections to all others.
class Transport {
 public:
  virtual ~Transport() = default;

  // Post a message of at least one byte, and the receive of one. The bytes must stay valid
  // until the posting is done or destroyed. A receive may have more room than the message
  // needs, but never less. Messages between a pair with the same tag keep their order. On a
  // broken connection they fail with kUnavailable.
  virtual Result<std::unique_ptr<Posting>> Send(int to, uint32_t tag,
                                                std::span<const uint8_t> bytes) = 0;
  virtual Result<std::unique_ptr<Posting>> Receive(int from, uint32_t tag,
                                                   std::span<uint8_t> bytes) = 0;
};

struct TransportOptions {
  int rank = 0;
  int world_size = 1;
  std::string store_host;  // where the workers find each other's addresses
  uint16_t store_port = 0;
  std::string store_prefix;
  std::chrono::milliseconds connect_timeout{};
  bool one_machine = false;  // whether all workers are on this machine
};

}  // namespace elastiquant
