// Who is alive: every worker's heart beats in the store, and every worker watches the others'.
// All survivors of a death name the same worker, the first that failed, because whoever notices
// first writes the blame into the store before it stops and is missed itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/collective/store.h"

namespace elastiquant {

struct LivenessOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{20000};
  bool rank_0_hosts_store = true;
  std::string store_name;  // for messages: "the rendezvous store at host:port"
  // Called at most once, from one of this class's threads.
  std::function<void(const Status&)> on_lost;
};

// Time as this process lived it: while the whole process was stopped (Ctrl-Z, a sleeping
// laptop) it does not pass, so that nobody is declared dead for having been stopped as well.
class LivedTime {
 public:
  explicit LivedTime(std::chrono::milliseconds longest_tick) : longest_(longest_tick) {}
  void Tick();
  std::chrono::milliseconds now() const { return now_; }

 private:
  const std::chrono::milliseconds longest_;
  std::chrono::milliseconds now_{0};
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

class Liveness {
 public:
  // Writes what the others' watching needs. To be called before this worker counts as present.
  static Status Announce(Store& store, int rank);

  // Starts to beat and to watch; all workers have announced themselves. The connection is for
  // this class alone, because a frozen store blocks whoever uses it.
  Liveness(std::unique_ptr<Store> store, LivenessOptions options);
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // An operation with this peer failed. Returns the verdict once it is settled.
  Status Blame(int peer, const std::string& why);

  // This worker cannot go on: the others learn why. on_lost is not called here.
  void Fail(const Status& why);

  // This worker needs nobody any more. The host of the store waits for all the others.
  void Leave();

  // Who failed and how; ok while all is well.
  Status verdict() const;

 private:
  struct Peer {
    std::string state;
    std::chrono::milliseconds changed{0};
  };

  void BeatLoop();
  void WatchLoop();
  Status Round();
  Status PublishAccusation();
  void LookAtPeers(const std::vector<std::string>& states);
  bool AllDone(const std::vector<std::string>& states) const;
  void Convict(const std::string& blame);
  void LetOthersLearn(int culprit);
  void StoreFailed(const std::string& why);
  void Settle(const Status& verdict);
  void Accuse(int rank, std::string why);
  bool HostsStore() const { return options_.rank_0_hosts_store && options_.rank == 0; }

  const LivenessOptions options_;
  const std::chrono::milliseconds interval_;
  const std::chrono::milliseconds patience_;  // a heart that stands still for longer is lost
  const std::unique_ptr<Store> store_;
  std::vector<std::string> keys_;  // every worker's state, then the blame

  // The beating thread's own.
  uint64_t beats_ = 0;
  LivedTime clock_;
  std::vector<Peer> peers_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t rounds_ = 0;
  int accused_ = -1;
  std::string accusation_;
  bool failing_ = false;  // by Fail: the caller knows already
  bool leaving_ = false;
  bool finished_ = false;  // left, or settled: nothing is beaten or watched any more
  bool told_ = false;      // finished, and on_lost has returned
  Status verdict_;

  std::thread beat_thread_;
  std::thread watch_thread_;
};

}  // namespace elastiquant
