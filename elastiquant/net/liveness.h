// Liveness tells which workers are alive and which make progress: every worker's heart beats in
// the store, and every worker watches the others'. All survivors name the same worker, the
// first that failed, because whoever notices first writes the blame into the store before it
// stops and is missed itself.
//
// A worker that needs nobody any more says so, and what it has sent, and stays until the others
// have received all of it. A worker that needs more than that of it gives it up. Once the host
// of the store has said so, the others begin nothing new, and it stays until all of them have
// what they wait for: until then they watch each other as before.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/net/ledger.h"
#include "elastiquant/net/store.h"
#include "elastiquant/net/worker_names.h"
#include "elastiquant/net/worker_state.h"

namespace elastiquant {

struct LivenessOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{20000};
  std::chrono::milliseconds stall_timeout{0};  // 0: never
  bool rank_0_hosts_store = true;
  std::string store_name;  // in messages: "the rendezvous store at host:port"
  WorkerNames names;
  std::shared_ptr<Ledger> ledger;  // this worker's
  // Called at most once: from one of this class's threads, or from one that calls Blame or
  // HostHasLeft when the host of the store has left.
  std::function<void(const Status&)> on_lost;
};

// Time as this process lived it. It does not pass while the whole process is stopped (Ctrl-Z, a
// sleeping laptop), so that nobody is declared dead for having been stopped as well.
class LivedTime {
 public:
  explicit LivedTime(std::chrono::milliseconds longest_tick) : longest_(longest_tick) {}
  // Lets the time since the last tick pass, but no more than `longest_tick` of it, and `busy`,
  // which is what this process is known to have needed for its work meanwhile.
  void Tick(std::chrono::milliseconds busy = {});
  std::chrono::milliseconds now() const { return now_; }

 private:
  const std::chrono::milliseconds longest_;
  std::chrono::milliseconds now_{0};
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Beats for one worker, watches the others, and says which of them was lost. Every communicator
// of more than one worker has one.
class Liveness {
 public:
  // Writes what the others need to watch this worker. Must be called before this worker counts
  // as present.
  static Status Announce(Store& store, int rank);

  // Starts to beat and to watch. All workers must have announced themselves. The connection to
  // the store is for this class alone, because a frozen store blocks whoever uses it.
  static std::shared_ptr<Liveness> Start(std::shared_ptr<Store> store, LivenessOptions options);
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // Says what this worker does, in words that follow "it is".
  void SetActivity(std::string activity);
  // Says why it will leave, in words such as "its script ended".
  void SetFarewell(std::string why);

  // Reports that an operation with this peer failed. Returns the verdict once it is settled.
  Status Blame(int peer, const std::string& why);
  // The same of an operation with no peer in particular, which accuses nobody.
  Status Explain(const std::string& why);

  // Returns the error of whatever is begun after the ledger was closed: the verdict if there is
  // one, or else that the host of the store has left. Calls on_lost in the second case.
  Status HostHasLeft();

  // Returns the rank that the verdict blames, if there is one that blames any.
  std::optional<int> culprit() const;

  // Says that this worker cannot go on, tells the others why, and returns when the verdict is
  // settled. Does not call on_lost.
  void Fail(const Status& why);

  // Says that this worker needs nobody any more; from here on on_lost is not called. Returns
  // when no living worker needs this one, or, if it hosts the store, needs the store. Whoever
  // needs it for longer than the stall timeout (30 minutes if there is none) and the timeout
  // together counts as stuck, and is not waited for.
  void Leave();

 private:
  struct Peer {
    std::string text;  // its encoded state
    WorkerState state;
    std::chrono::milliseconds beaten{0};  // when the text last changed, on clock_
    std::chrono::milliseconds moved{0};   // when a message of its own last ended
  };

  // Counts the threads that still run. It outlives what they work on.
  struct Running {
    std::mutex mutex;
    std::condition_variable changed;
    int threads = 0;
  };

  Liveness(std::shared_ptr<Store> store, LivenessOptions options);
  void BeatLoop();
  void WatchLoop();
  Status Round();
  WorkerState MyState();
  void TakeIn(const std::vector<std::string>& states);
  Result<std::string> PublishAccusation();
  void LookAtPeers();
  void LookForStall(const WorkerState& mine);
  bool IsSilent(const Peer& peer) const { return clock_.now() - peer.beaten > patience_; }
  bool LetsHostGo(int host);
  bool HasNotSentEnough(int rank) const;
  bool HasMoreForUs(int rank) const;
  bool IsNeeded() const;
  bool OthersAreDone() const;
  Status Go(WorkerState mine);
  std::string WordsOfDeparture(int rank) const;
  void Convict(const std::string& blame);
  void LetOthersLearn(std::optional<int> dead, bool linger);
  void StoreFailed(const std::string& why);
  void Finish();
  void Settle(const Status& verdict);
  void Accuse(int rank, std::string why, bool lives = false);
  bool HostsStore(int rank) const { return options_.rank_0_hosts_store && rank == 0; }

  const LivenessOptions options_;
  const std::chrono::milliseconds interval_;
  const std::chrono::milliseconds patience_;  // a heart that stands still for longer is lost
  const std::shared_ptr<Store> store_;
  std::vector<std::string> keys_;  // every worker's state, then the blame

  // These are used by the beating thread alone.
  uint64_t beats_ = 0;
  LivedTime clock_;
  std::vector<Peer> peers_;
  uint64_t ended_ = 0;                    // Ledger::ended() of a round ago
  std::chrono::milliseconds got_on_{0};   // when it last did not just wait, on clock_
  std::chrono::milliseconds left_at_{0};  // when it last had not left, on clock_

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t rounds_ = 0;
  int accused_ = -1;
  bool accused_lives_ = false;  // and is to learn of it, like the others
  std::string accusation_;
  std::string activity_ = "about to begin";
  std::string farewell_ = "it needs the others no more";
  Status host_has_left_;
  bool needs_nobody_ = false;  // because that has left, and the ledger is closed
  bool failing_ = false;       // set by Fail: the caller knows already
  bool leaving_ = false;
  bool finished_ = false;  // it has left or a verdict is settled: it neither beats nor watches
  bool told_ = false;      // it has finished, and on_lost has returned if it was called
  Status verdict_;
  std::optional<int> culprit_;  // of the verdict
  const std::shared_ptr<Running> running_;
};

}  // namespace elastiquant
