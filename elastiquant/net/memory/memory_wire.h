// The messages in memory between pairs of workers: the half of MemoryNetwork that moves bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/net/memory/memory_hosts.h"
#include "elastiquant/net/transport.h"

namespace elastiquant {

// What becomes of messages on their way. Whatever is drawn depends on nothing but the seed, the
// pair of workers and the number of the message between them.
struct MemoryFaults {
  // Every message takes a time that is drawn evenly between these two.
  std::chrono::microseconds least_delay{0}, most_delay{0};
  // A message is lost at first with probability `loss`, in [0, 1], and then comes later by
  // `retransmission`, as over TCP.
  double loss = 0;
  std::chrono::milliseconds retransmission{20};
  uint64_t seed = 0;
};

// Carries the messages of one MemoryNetwork.
class MemoryWire {
 public:
  MemoryWire(std::shared_ptr<MemoryHosts> hosts, const MemoryFaults& faults);
  ~MemoryWire();  // the hosts must be closed
  MemoryWire(const MemoryWire&) = delete;
  MemoryWire& operator=(const MemoryWire&) = delete;

  // Returns the transport of one worker, on this host. It shares the wire.
  static std::unique_ptr<Transport> Connect(std::shared_ptr<MemoryWire> wire,
                                            const TransportOptions& options, int host);

  // Must be called with the lock of the hosts held. Bury makes the postings of others that wait
  // for a message from this host fail, and loses what is on its way to or from it. Cut loses
  // all that these two send each other from now on.
  void Bury(int host);
  void Cut(int a, int b);

 private:
  using Clock = std::chrono::steady_clock;
  using Pair = std::pair<int, int>;                         // from, to
  using Box = std::tuple<std::string, int, int, uint32_t>;  // the job, from, to, tag
  using AnyBox = std::tuple<std::string, int, uint32_t>;    // the job, to, tag
  struct Slot;
  class Waiting;
  class End;
  struct Flight {
    Box box;
    std::vector<uint8_t> bytes;
  };
  struct Arrived {
    uint64_t number;  // counts what has arrived anywhere
    std::vector<uint8_t> bytes;
  };

  // A job may give its ranks to hosts as it likes. Until a rank has connected it is on no host
  // that may be dead, but a path to it may be cut already: to the host of its number.
  int HostOf(const std::string& job, int rank, int otherwise = kUnnamedHost) const;
  bool IsCut(const std::string& job, int a, int b) const;
  std::shared_ptr<Slot> Post(const std::string& job, int from, int to, uint32_t tag,
                             std::span<const uint8_t> bytes);
  std::shared_ptr<Slot> Expect(const std::string& job, int from, int to, uint32_t tag,
                               std::span<uint8_t> room);
  std::deque<Arrived>* Earliest(const AnyBox& box, int* from);
  static std::shared_ptr<Slot> TakeWaiting(std::deque<std::shared_ptr<Slot>>& slots);
  Clock::time_point Arrival(Pair pair);
  void Arrive(const Box& box, std::vector<uint8_t> bytes);
  static void Fill(Slot& slot, int from, const std::vector<uint8_t>& bytes);
  void Deliver();

  const std::shared_ptr<MemoryHosts> hosts_;
  const MemoryFaults faults_;
  std::map<std::pair<std::string, int>, int> host_of_;  // by job and rank
  std::set<Pair> cut_;                                  // hosts
  std::map<Pair, uint64_t> posted_;                     // how many messages have ever been sent
  std::map<Pair, Clock::time_point> last_arrival_;      // so that none overtakes another
  std::multimap<Clock::time_point, Flight> flights_;
  uint64_t arrivals_ = 0;
  std::map<Box, std::deque<Arrived>> arrived_;
  std::map<Box, std::deque<std::shared_ptr<Slot>>> expected_;
  std::map<AnyBox, std::deque<std::shared_ptr<Slot>>> expected_from_any_;
  std::thread deliverer_;
};

}  // namespace elastiquant
