// A record of what this worker has to do with each of the others: the messages that were begun
// and that are under way, and the workers that its threads wait for. Liveness publishes it, so
// that nobody waits for a worker that has left, and the others can tell who holds them up.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

#include "elastiquant/net/transport.h"

namespace elastiquant {

enum class Way { kSend, kReceive };

// The ledger of one worker. It is thread-safe.
class Ledger {
 public:
  // How many messages were ever begun with one peer. What is received from any counts when it
  // is known whose it is.
  struct Account {
    uint64_t sent = 0;
    uint64_t received = 0;
  };

  explicit Ledger(int world_size) : peers_(static_cast<size_t>(world_size)) {}

  // In all four, a receive may be from kAnyPeer.
  //
  // Notes that a message is posted. Once the ledger is closed it notes nothing, and returns
  // false.
  bool Begin(int peer, Way way);
  // Notes that a message has come, has gone, has failed, or was given up. `came_from` is the
  // peer whose message a receive from any took, or kAnyPeer if it took none.
  void End(int peer, Way way, int came_from = kAnyPeer);
  // Note that a thread begins to wait for a message from or to the peer, and that it has ended.
  void BeginWait(int peer);
  void EndWait(int peer);

  std::vector<Account> accounts() const;  // by rank
  // Returns how many messages ever ended: if it grows, this worker makes progress.
  uint64_t ended() const;
  // Returns the ranks that some thread waits for: all of them, if it waits for any.
  std::set<int> waits_for() const;
  bool receives_from(int peer) const;  // whether a message from it in particular is under way
  bool receives_from_any() const;
  // Closes the ledger, so that no message can be begun any more, if no message to this worker
  // is under way. Returns whether it is closed.
  bool CloseIfIdle();

 private:
  struct Peer {
    Account begun;
    uint64_t receives_under_way = 0;
    uint64_t waits = 0;
  };

  Peer& At(int peer) { return peer == kAnyPeer ? any_ : peers_[static_cast<size_t>(peer)]; }

  mutable std::mutex mutex_;
  std::vector<Peer> peers_;
  Peer any_;
  uint64_t ended_ = 0;
  bool closed_ = false;
};

}  // namespace elastiquant
