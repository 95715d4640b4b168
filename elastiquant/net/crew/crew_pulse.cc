#include "elastiquant/net/crew/crew_pulse.h"

#include <thread>
#include <utility>

namespace elastiquant {

using std::chrono::milliseconds;

std::string HeartKey(int worker) { return "heart/" + std::to_string(worker); }
std::string HereKey(int group, int worker) {
  return "group/" + std::to_string(group) + "/here/" + std::to_string(worker);
}
std::string GroupKey(int group) { return "group/" + std::to_string(group) + "/list"; }
std::string NewcomerKey(int group) { return "group/" + std::to_string(group) + "/newcomers"; }

Result<int> FindNewestGroup(Store& store) {
  int newest = 0, beyond = 1;  // the newest that is known, and one that may not exist
  for (;;) {
    EQ_ASSIGN_OR_RETURN(const bool exists, store.Exists(GroupKey(beyond)));
    if (!exists) break;
    newest = beyond;
    beyond *= 2;
  }
  while (beyond - newest > 1) {
    const int middle = newest + (beyond - newest) / 2;
    EQ_ASSIGN_OR_RETURN(const bool exists, store.Exists(GroupKey(middle)));
    (exists ? newest : beyond) = middle;
  }
  return newest;
}

CrewPulse::CrewPulse(std::unique_ptr<Store> store, int worker, milliseconds interval) {
  state_->store = std::move(store);
  state_->worker = worker;
  state_->interval = interval;
  std::thread([state = state_] { Beat(state); }).detach();
}

CrewPulse::~CrewPulse() {
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, milliseconds(500), [&] { return state_->stopped; });
}

void CrewPulse::Beat(const std::shared_ptr<State>& state) {
  for (uint64_t beat = 1;; ++beat) {
    const Status status = Round(state.get(), beat);
    std::unique_lock lock(state->mutex);
    state->failure = status;
    if (!status.ok()) state->stop = true;
    state->changed.notify_all();
    state->changed.wait_for(lock, state->interval, [&] { return state->stop; });
    state->stopped = state->stop;
    if (!state->stop) continue;
    state->changed.notify_all();
    return;
  }
}

Status CrewPulse::Round(State* state, uint64_t beat) {
  int group;
  const Clock::time_point began = Clock::now();
  {
    const std::lock_guard lock(state->mutex);
    group = state->group;
  }
  EQ_RETURN_IF_ERROR(state->store->Set(HeartKey(state->worker), std::to_string(beat)));
  EQ_ASSIGN_OR_RETURN(const bool newcomers, state->store->Exists(NewcomerKey(group + 1)));
  EQ_ASSIGN_OR_RETURN(const bool next, state->store->Exists(GroupKey(group + 1)));
  const std::lock_guard lock(state->mutex);
  if (group != state->group) return {};
  state->newcomers = newcomers;
  state->left_behind = next;
  state->looked = began;
  return {};
}

bool CrewPulse::beats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure.ok();
}

void CrewPulse::SetGroup(int group) {
  const std::lock_guard lock(state_->mutex);
  state_->group = group;
  state_->newcomers = state_->left_behind = false;
}

bool CrewPulse::newcomers_wait() const {
  const std::lock_guard lock(state_->mutex);
  return state_->newcomers;
}

Result<bool> CrewPulse::IsLeftBehind(milliseconds fresh, milliseconds patience) const {
  std::unique_lock lock(state_->mutex);
  const Clock::time_point oldest = Clock::now() - fresh;
  const bool known = state_->changed.wait_for(
      lock, patience, [&] { return state_->looked >= oldest || !state_->failure.ok(); });
  EQ_RETURN_IF_ERROR(state_->failure);
  if (!known) return Unavailable("the rendezvous store does not answer");
  return state_->left_behind;
}

}  // namespace elastiquant
