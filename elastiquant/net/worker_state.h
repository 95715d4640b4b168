// What a worker lets the others know with each beat of its heart.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/net/ledger.h"

namespace elastiquant {

// "worker 3", as messages to the user name the worker of rank 3.
std::string WorkerName(int rank);

// The last words of a worker that will do nothing more with the others.
struct Departure {
  std::string why;                        // "its script ended"
  std::vector<Ledger::Account> accounts;  // all that it ever did with each, by rank
};

struct WorkerState {
  uint64_t beats = 0;
  uint64_t ended = 0;         // Ledger::ended
  std::set<int> waits_for{};  // the ranks for whose messages a thread of it waits
  std::set<int> released{};   // those that have left, and from whom nothing more is to come
  std::string activity{};     // what it does, as words that follow "it is"
  std::optional<Departure> departure{};
  bool gone = false;  // after it: it will not come to the store again

  std::string Encode() const;
  static WorkerState Parse(std::string_view text);  // of Encode
};

// A worker has waited for too long. Who holds it up?
struct Stall {
  int culprit = -1;
  std::string words;
};
// Follows who waits for whom, from `rank` on. It is a worker that waits for nobody itself (of
// several the one whose count of messages stands still for longest), or else two that wait for
// each other. states and still: by rank. waited: "1800 s (stall_timeout)".
Stall FindStall(const std::vector<WorkerState>& states,
                const std::vector<std::chrono::milliseconds>& still, int rank,
                const std::string& waited);

}  // namespace elastiquant
