// The communication between the N workers of one training job: point-to-point messages with
// every byte counted, an optional emulated link, and liveness that names the worker that died.
// The network beneath is handed in.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/link_spec.h"
#include "elastiquant/base/status.h"
#include "elastiquant/net/network.h"
#include "elastiquant/net/transport.h"
#include "elastiquant/net/worker_names.h"

namespace elastiquant {

struct CommunicatorOptions {
  int rank = 0;
  int world_size = 1;                // 1 to 16 are tested
  std::shared_ptr<Network> network;  // may be null for a world of one
  std::string store_host = "127.0.0.1";
  uint16_t store_port = 0;           // rank 0 listens there, unless store_is_external
  bool store_is_external = false;    // whether torchrun's agent or a StoreHost listens there
  std::shared_ptr<StoreHost> store;  // on rank 0: the store, if it listens there already
  std::string job;                   // keeps jobs apart that share an external store
  std::chrono::milliseconds timeout{20000};  // a peer silent for longer is lost; at least 1 s
  // A worker that lives but makes no progress is lost when another has waited for it for this
  // long. If it is 0, that never happens.
  std::chrono::milliseconds stall_timeout{std::chrono::minutes(30)};
  std::chrono::milliseconds connect_timeout{20000};  // for all workers to come to Connect
  std::optional<LinkSpec> link;                      // an emulated access link
  std::map<int, LinkSpec> wires;  // by peer: emulated links of their own, which `link` is not
  WorkerNames names;              // in errors and notices
  // If two workers have one rank, the second fails. The others fail as well, unless this is
  // set, or all have met.
  bool refuses_alone = false;
  // Called when a peer is lost, at most once, from a thread that watches the peers, or one that
  // posts a message or waits for one. It must not return into training: the default prints the
  // status to stderr and ends the process with exit code 3.
  std::function<void(const Status&)> on_peer_lost;
};

// Every message travels behind a header of this size, which says how long it is.
inline constexpr size_t kMessageHeaderBytes = 16;

// What this process has sent and received. Bytes are those of messages and their headers: they
// count when a message is handed over for sending, or has been received.
struct Traffic {
  uint64_t bytes_up = 0;
  uint64_t bytes_down = 0;
  double transmit_seconds = 0;  // the time that the uplink was busy with our bytes

  // Returns what was added since `earlier`.
  Traffic operator-(const Traffic& earlier) const {
    return {bytes_up - earlier.bytes_up, bytes_down - earlier.bytes_down,
            transmit_seconds - earlier.transmit_seconds};
  }
};

// A message under way. Wait() may be called once, from any thread.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // Waits until the message has come, or has been sent, and returns how many bytes it has.
  virtual Result<size_t> Wait() = 0;
};

// A message that comes in. It holds the memory that the message comes into.
class Incoming : public Transfer {
 public:
  // Returns true as soon as the message has come, or false at the deadline. It may be called
  // again and again, from one thread at a time. Wait() must be called all the same, and returns
  // at once if the message has come.
  virtual Result<bool> WaitUntil(Deadline deadline) = 0;
  // Return what came, the rank that it came from, and the metric that the sender gave. Valid
  // after Wait().
  virtual std::span<const uint8_t> bytes() const = 0;
  virtual int from() const = 0;
  virtual uint16_t metric() const = 0;
};

// What a worker sends and receives by. It is thread-safe: any thread may post messages, and
// those between a pair of workers with the same tag keep their order.
class Communicator {
 public:
  // Returns when all workers have connected. If there is more than one, the process ignores
  // SIGPIPE from here on, unless it handles it.
  static Result<std::unique_ptr<Communicator>> Connect(const CommunicatorOptions& options);
  // All transfers must have ended. Waits until the others have received what this worker sent,
  // which takes as long as a heartbeat, or as the message does on a slow link.
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  // What messages to the user call the workers, the same on all of them.
  virtual WorkerNames names() const { return {}; }

  // Send posts a message of at least one byte. It copies the bytes, so that the span may be
  // written to again. Receive posts room for one, which may be more than the message needs, but
  // never less. `from` may be kAnyPeer: the message is then the first that any worker sends
  // with this tag, which must not be used to receive from one in particular. tag < 2^24.
  // Waiting for a transfer has no time limit of its own, because a slow link may need long: it
  // ends with the message, or with an error when a worker is lost or stuck. Every transfer must
  // be waited for, unless a worker was lost. `metric` names the metric in which the bytes are
  // to be understood, for receivers to compare with theirs; 0 means that there is none.
  virtual std::unique_ptr<Transfer> Send(int to, uint32_t tag, std::span<const uint8_t> bytes,
                                         uint16_t metric = 0) = 0;
  virtual std::unique_ptr<Incoming> Receive(int from, uint32_t tag, size_t room) = 0;

  // The control plane, which is not counted as traffic and not slowed by the emulated link.
  // These calls are collective: every rank makes the same sequence of them, from one thread.
  virtual Status Barrier() = 0;
  virtual Result<std::vector<uint64_t>> AllGather(uint64_t value) = 0;  // by rank
  virtual Status Broadcast(int root, std::span<uint8_t> bytes) = 0;

  // Returns how many numbers all workers together had taken before: each is given to one worker
  // only. It is of the control plane but not collective, and any thread may call it. It asks
  // the store, which takes a delay of the network. Fails with kUnavailable if the store is
  // gone.
  virtual Result<uint64_t> TakeNumber() = 0;

  virtual Traffic traffic() const = 0;  // since Connect
  // Returns the most bytes that messages under way have had room for at once, in both
  // directions.
  virtual size_t peak_buffer_bytes() const = 0;

  // Says what this worker does, in words that follow "it is": the others are told if it gets
  // stuck.
  virtual void SetActivity(std::string activity) = 0;
  // Says why this worker will leave, in words such as "its script ended": the others are told,
  // should they still wait for it. Must be called before the communicator is destroyed.
  virtual void SetFarewell(std::string why) = 0;

  // Returns the rank of the peer that was lost, once on_peer_lost has been called, if it is
  // known which one it was.
  virtual std::optional<int> lost_rank() const { return {}; }

  // Says that this worker cannot go on: all others stop too, naming it and the reason. Waits in
  // progress here end with an error. The caller still has to end its own process.
  virtual void Abort(const Status& why) = 0;
};

// Returns the options of the job that torchrun started this process in, from RANK, WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT, TORCHELASTIC_USE_AGENT_STORE, TORCHELASTIC_RUN_ID and
// TORCHELASTIC_RESTART_COUNT. The error says which variable is missing or wrong.
Result<CommunicatorOptions> OptionsFromEnvironment();

}  // namespace elastiquant
