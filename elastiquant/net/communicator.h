// N workers of one training job: point-to-point messages with every byte counted, an optional
// emulated link, and liveness that names the worker that died. The network beneath is handed
// in.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/link_spec.h"
#include "elastiquant/base/status.h"
#include "elastiquant/net/network.h"

namespace elastiquant {

struct CommunicatorOptions {
  int rank = 0;
  int world_size = 1;                // 1 to 16 are tested
  std::shared_ptr<Network> network;  // may be null for a world of one
  std::string store_host = "127.0.0.1";
  uint16_t store_port = 0;           // rank 0 listens there, unless store_is_external
  bool store_is_external = false;    // torchrun's agent or a StoreHost already listens there
  std::shared_ptr<StoreHost> store;  // of rank 0: the store, if it listens there already
  std::string job;                   // keeps apart jobs that share an external store
  std::chrono::milliseconds timeout{20000};  // a peer silent for longer is lost; at least 1 s
  // A worker that lives but makes no progress is lost when another has waited for it for so
  // long; 0: never.
  std::chrono::milliseconds stall_timeout{std::chrono::minutes(30)};
  std::chrono::milliseconds connect_timeout{20000};  // for all workers to come to Connect
  std::optional<LinkSpec> link;
  // Called from a watcher thread, at most once, when a peer is lost; must not return into
  // training: the default prints the status to stderr and ends the process with exit code 3.
  std::function<void(const Status&)> on_peer_lost;
};

// Every message travels behind a header of this size, which says how long it is.
inline constexpr size_t kMessageHeaderBytes = 16;

// Bytes are those of messages and their headers, handed over for sending and received, this
// process only.
struct Traffic {
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  double transmit_seconds = 0;  // the time that the uplink was busy with our bytes
};

// A message under way. Wait() may be called once, from any thread.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // How many bytes came, or were sent.
  virtual Result<size_t> Wait() = 0;
};

// One that comes in, in memory of its own.
class Incoming : public Transfer {
 public:
  // What came, after Wait().
  virtual std::span<const uint8_t> bytes() const = 0;
};

// Thread-safe: any thread may post; messages between a pair with the same tag keep their order.
class Communicator {
 public:
  // With more than one worker the process ignores SIGPIPE from here on, unless it handles it.
  static Result<std::unique_ptr<Communicator>> Connect(const CommunicatorOptions& options);
  // All transfers have ended. Waits until the others have received what this worker sent: as
  // long as a heartbeat takes, or the message on a slow link.
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;

  // A message has at least one byte, and is copied: the span may be written to again. A receive
  // may have more room than the message needs, never less. tag < 2^24. A wait has no time limit
  // of its own, because a slow link may need long: it ends with the message, or with an error
  // when a worker is lost or stuck. Every transfer must be waited for, unless a worker was
  // lost.
  virtual std::unique_ptr<Transfer> Send(int to, uint32_t tag,
                                         std::span<const uint8_t> bytes) = 0;
  virtual std::unique_ptr<Incoming> Receive(int from, uint32_t tag, size_t room) = 0;

  // Control plane, not counted as traffic, not slowed by the emulated link. Collective: every
  // rank calls the same sequence from one thread.
  virtual Status Barrier() = 0;
  virtual Result<std::vector<uint64_t>> AllGather(uint64_t value) = 0;  // by rank
  virtual Status Broadcast(int root, std::span<uint8_t> bytes) = 0;

  virtual Traffic traffic() const = 0;  // since Connect
  // The most bytes that messages under way have had room for at once, in both directions.
  virtual size_t peak_buffer_bytes() const = 0;

  // What this worker does, in words that follow "it is": the others are told if it gets stuck.
  virtual void SetActivity(std::string activity) = 0;
  // Why this worker will leave: the others are told, should they still wait for it. To be said
  // before the communicator is destroyed, in words such as "its script ended".
  virtual void SetFarewell(std::string why) = 0;

  // This worker cannot go on: all others stop too, naming it and the reason. Waits in progress
  // here end with an error. The caller still has to end its own process.
  virtual void Abort(const Status& why) = 0;
};

// The job that torchrun started this process in: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
// TORCHELASTIC_USE_AGENT_STORE and friends. The error says which variable is missing or wrong.
Result<CommunicatorOptions> OptionsFromEnvironment();

}  // namespace elastiquant
