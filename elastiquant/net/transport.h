// Point-to-point messages between the workers of one job, with errors as values. This is all
// that the floors above ask of a network: PyTorch's Gloo carries the messages in production
// (c10d), and this process's own memory does in tests and between virtual workers
// (memory/memory_network.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "elastiquant/base/status.h"

namespace elastiquant {

// When waits end at the latest.
using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

// In place of the rank of a peer: a message that may come from any of them. It is no number
// that a slip such as `rank - 1` gives, for which there must be an error and not a wait.
inline constexpr int kAnyPeer = std::numeric_limits<int>::min();

// A message that has been posted.
class Posting {
 public:
  virtual ~Posting() = default;
  // Returns true when the message has been sent or has come, and false at the deadline: it is
  // posted still, and may be waited for again. A wait takes a millisecond at least before it
  // gives up. Must not be called again once it has returned true or an error.
  virtual Result<bool> WaitUntil(Deadline deadline) = 0;
  // Makes the wait end with kUnavailable. May be called from any thread.
  virtual void Abort() = 0;
  // Returns the rank at the other end. That of a receive from any is known once it has come.
  virtual int peer() const = 0;
};

// One worker's connections to all others.
class Transport {
 public:
  virtual ~Transport() = default;

  // Post a message of at least one byte, and the receive of one. The bytes must stay valid
  // until the posting is done or destroyed. A receive may have more room than the message
  // needs, but never less. Messages between a pair with the same tag keep their order. On a
  // broken connection they fail with kUnavailable. With kAnyPeer a receive takes a message from
  // whichever peer sends one with this tag. It does not fail when one of them is lost, and a
  // tag must be received either always from any or never.
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
