// What this worker has to do with each of the others: the messages begun and under way, and for
// whom its threads wait. Liveness publishes it, so that nobody waits for a worker that has
// left, and the others can tell who holds them up.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

namespace elastiquant {

enum class Way { kSend, kReceive };

class Ledger {
 public:
  // Messages that were ever begun with one peer.
  struct Account {
    uint64_t sent = 0;
    uint64_t received = 0;
  };

  explicit Ledger(int world_size) : peers_(static_cast<size_t>(world_size)) {}

  // A message is posted. False, and nothing is noted, once the ledger is closed.
  bool Begin(int peer, Way way);
  // It has come, has gone, has failed, or was given up.
  void End(int peer, Way way);
  void BeginWait(int peer);
  void EndWait(int peer);

  std::vector<Account> accounts() const;  // by rank
  // How many messages ever ended: if it grows, this worker makes progress.
  uint64_t ended() const;
  std::set<int> waits_for() const;
  bool receives_from(int peer) const;  // a message from this peer is under way
  // Refuses all that is to come, if no message to this worker is under way.
  bool CloseIfIdle();

 private:
  struct Peer {
    Account begun;
    uint64_t receives_under_way = 0;
    uint64_t waits = 0;
  };

  mutable std::mutex mutex_;
  std::vector<Peer> peers_;
  uint64_t ended_ = 0;
  bool closed_ = false;
};

}  // namespace elastiquant
