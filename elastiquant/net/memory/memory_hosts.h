// The machines of a network in memory: which of them have died or stand still. One lock guards
// these and all that depends on them, because a test's worlds are small.
#pragma once

#include <condition_variable>
#include <mutex>
#include <set>

#include "elastiquant/base/status.h"

namespace elastiquant {

// The rank of workers that a test neither kills nor freezes.
inline constexpr int kUnnamedHost = -1;

// MemoryStores and MemoryWire share one of these.
struct MemoryHosts {
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int> dead, frozen;
  bool closed = false;  // the network itself is gone

  // Returns when the worker is not frozen, or with an error when it is dead or the network is
  // closed. Called by a thread of the worker, which holds `lock`.
  Status Live(std::unique_lock<std::mutex>& lock, int rank) {
    changed.wait(lock, [&] { return closed || dead.contains(rank) || !frozen.contains(rank); });
    if (closed) return Unavailable("the network in memory is closed");
    if (dead.contains(rank)) return Unavailable("this worker was killed");
    return {};
  }
};

}  // namespace elastiquant
