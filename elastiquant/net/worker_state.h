// A worker's state, which it publishes to the others with each beat of its heart.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/net/ledger.h"
#include "elastiquant/net/worker_names.h"

namespace elastiquant {

// The last words of a worker that will do nothing more with the others.
struct Departure {
  std::string why;                        // "its script ended"
  std::vector<Ledger::Account> accounts;  // what it ever began with each peer, by rank
};

struct WorkerState {
  uint64_t beats = 0;
  uint64_t ended = 0;         // Ledger::ended
  std::set<int> waits_for{};  // the ranks that its threads wait for
  std::set<int> released{};   // the ranks that have left and owe it nothing more
  std::string activity{};     // what it does, in words that follow "it is"
  std::optional<Departure> departure{};
  bool gone = false;  // whether it needs nobody and will not use the store again

  std::string Encode() const;
  static WorkerState Parse(std::string_view text);  // reads what Encode wrote
};

// Who holds up a worker that has waited for too long, and how to tell it to the user.
struct Stall {
  int culprit = -1;
  std::string words;
};
// Follows who waits for whom, from worker `rank` on, and blames a worker that waits for nobody
// itself (of several the one whose count of messages has stood still for longest). If there is
// none, blames the lower rank of two that wait for each other, or else `rank` itself, which is
// then in a circle. `states` and `still`, how long each count has stood still, are by rank;
// `waited` is text such as "1800 s (stall_timeout)".
Stall FindStall(const std::vector<WorkerState>& states,
                const std::vector<std::chrono::milliseconds>& still, int rank,
                const WorkerNames& names, const std::string& waited);

}  // namespace elastiquant
