// Who is alive, and who gets on: every worker's heart beats in the store, and every worker
// watches the others'. All survivors name the same worker, the first that failed, because
// whoever notices first writes the blame into the store before it stops and is missed itself.
//
// A worker that needs nobody any more says so and what it has sent, and stays until the others
// have received all of it. Whoever needs more than that of it gives it up.
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
#include "elastiquant/net/ledger.h"
#include "elastiquant/net/store.h"
#include "elastiquant/net/worker_state.h"

namespace elastiquant {

struct LivenessOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{20000};
  std::chrono::milliseconds stall_timeout{0};  // 0: never
  bool rank_0_hosts_store = true;
  std::string store_name;          // for messages: "the rendezvous store at host:port"
  std::shared_ptr<Ledger> ledger;  // this worker's
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
  static std::shared_ptr<Liveness> Start(std::unique_ptr<Store> store, LivenessOptions options);
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // What this worker does, in words that follow "it is".
  void SetActivity(std::string activity);
  // Why it will leave, in words such as "its script ended".
  void SetFarewell(std::string why);

  // An operation with this peer failed. Returns the verdict once it is settled.
  Status Blame(int peer, const std::string& why);

  // Why nothing can be begun any more, when the ledger is closed: the host of the store has
  // left.
  Status HostHasLeft();

  // This worker cannot go on: the others learn why. on_lost is not called here.
  void Fail(const Status& why);

  // This worker needs nobody any more, and calls on_lost no more. Returns when nobody that
  // lives needs anything of this one, or, of the host of the store, the store.
  void Leave();

 private:
  struct Peer {
    std::string text;  // of its state
    WorkerState state;
    std::chrono::milliseconds beaten{0};  // on clock_, when the text last changed
    std::chrono::milliseconds moved{0};   // when a message of its own last ended
  };

  // Outlives what the threads work on.
  struct Running {
    std::mutex mutex;
    std::condition_variable changed;
    int threads = 0;
  };

  Liveness(std::unique_ptr<Store> store, LivenessOptions options);
  void BeatLoop();
  void WatchLoop();
  Status Round();
  WorkerState MyState();
  void TakeIn(const std::vector<std::string>& states);
  Result<std::string> PublishAccusation();
  void LookAtPeers();
  void LookForStall(const WorkerState& mine);
  bool IsSilent(const Peer& peer) const { return clock_.now() - peer.beaten > patience_; }
  bool HasNotSentEnough(int rank) const;
  bool IsNeeded() const;
  Status Go(WorkerState mine);
  std::string WordsOfDeparture(int rank) const;
  void Convict(const std::string& blame);
  void LetOthersLearn(int culprit, bool linger);
  void StoreFailed(const std::string& why);
  void Finish();
  void Settle(const Status& verdict);
  void Accuse(int rank, std::string why);
  bool HostsStore(int rank) const { return options_.rank_0_hosts_store && rank == 0; }

  const LivenessOptions options_;
  const std::chrono::milliseconds interval_;
  const std::chrono::milliseconds patience_;  // a heart that stands still for longer is lost
  const std::unique_ptr<Store> store_;
  std::vector<std::string> keys_;  // every worker's state, then the blame

  // The beating thread's own.
  uint64_t beats_ = 0;
  LivedTime clock_;
  std::vector<Peer> peers_;
  uint64_t ended_ = 0;                    // of the ledger, a round ago
  std::chrono::milliseconds got_on_{0};   // on clock_, when this worker last did not just wait
  std::chrono::milliseconds left_at_{0};  // on clock_

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t rounds_ = 0;
  int accused_ = -1;
  std::string accusation_;
  std::string activity_ = "about to begin";
  std::string farewell_ = "it needs the others no more";
  Status host_has_left_;
  bool failing_ = false;  // by Fail: the caller knows already
  bool leaving_ = false;
  bool finished_ = false;  // left, or settled: nothing is beaten or watched any more
  bool told_ = false;      // finished, and on_lost has returned
  Status verdict_;
  const std::shared_ptr<Running> running_;
};

}  // namespace elastiquant
