// The heartbeat of a worker in its crew, on a thread and a connection to the store of its own.
// It also looks for what the others have written about the group after this one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "elastiquant/base/status.h"
#include "elastiquant/net/store.h"

namespace elastiquant {

// The keys of a crew.
std::string HeartKey(int worker);
std::string HereKey(int group, int worker);
std::string GroupKey(int group);
std::string NewcomerKey(int group);  // whether there is one that waits for this group
// Returns the number of the newest group, where there is a group 0. Groups are numbered without
// gaps and stay in the store, so it asks for few of them: each costs a delay of the link.
Result<int> FindNewestGroup(Store& store);

class CrewPulse {
 public:
  // Begins to beat, once in each `interval`.
  CrewPulse(std::unique_ptr<Store> store, int worker, std::chrono::milliseconds interval);
  ~CrewPulse();
  CrewPulse(const CrewPulse&) = delete;
  CrewPulse& operator=(const CrewPulse&) = delete;

  // Returns whether it still beats: it ends for good when its store fails.
  bool beats() const;
  // This worker is in that group now, or waits for the one after it.
  void SetGroup(int group);
  bool newcomers_wait() const;  // for the next group
  // Returns whether the next group has been formed. If what is known of it is older than
  // `fresh`, looks again first, for `patience` at most. Fails with Unavailable if the store
  // does.
  Result<bool> IsLeftBehind(std::chrono::milliseconds fresh,
                            std::chrono::milliseconds patience) const;

 private:
  using Clock = std::chrono::steady_clock;

  // The thread holds it: it may be left behind in a store that does not answer.
  struct State {
    std::unique_ptr<Store> store;
    int worker = 0;
    std::chrono::milliseconds interval{};
    std::mutex mutex;
    std::condition_variable changed;
    bool stop = false, stopped = false;
    int group = 0;
    bool newcomers = false, left_behind = false;
    Clock::time_point looked{};  // when it last began to look
    Status failure;
  };
  static void Beat(const std::shared_ptr<State>& state);
  static Status Round(State* state, uint64_t beat);

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace elastiquant
