#include "elastiquant/collective/liveness.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

constexpr char kBlameKey[] = "blame";
constexpr char kNobody[] = "nobody";
constexpr char kDone[] = "done";

std::string StateKey(int rank) { return "state/" + std::to_string(rank); }
std::string LearntKey(int rank) { return "learnt/" + std::to_string(rank); }
std::string Worker(int rank) { return "worker " + std::to_string(rank); }

std::string Seconds(milliseconds t) {
  const std::string tenths = std::to_string(t.count() % 1000 / 100);
  return std::to_string(t.count() / 1000) + (tenths == "0" ? "" : "." + tenths) + " s";
}

}  // namespace

void LivedTime::Tick() {
  const auto now = std::chrono::steady_clock::now();
  now_ += std::min(longest_, std::chrono::duration_cast<milliseconds>(now - last_));
  last_ = now;
}

Status Liveness::Announce(Store& store, int rank) {
  EQ_RETURN_IF_ERROR(store.CompareSet(kBlameKey, "", kNobody).status());
  return store.Set(StateKey(rank), "0");
}

Liveness::Liveness(std::unique_ptr<Store> store, LivenessOptions options)
    : options_(std::move(options)),
      interval_(std::clamp(options_.timeout / 10, milliseconds(20), milliseconds(1000))),
      // A beat may just have been missed, and the verdict takes a round to reach everybody.
      patience_(std::max(options_.timeout - 2 * interval_, 2 * interval_)),
      store_(std::move(store)),
      clock_(2 * interval_),
      peers_(static_cast<size_t>(options_.world_size)) {
  for (int r = 0; r < options_.world_size; ++r) keys_.push_back(StateKey(r));
  keys_.push_back(kBlameKey);
  beat_thread_ = std::thread([this] { BeatLoop(); });
  watch_thread_ = std::thread([this] { WatchLoop(); });
}

Liveness::~Liveness() {
  Leave();
  beat_thread_.join();
  watch_thread_.join();
}

void Liveness::BeatLoop() {
  for (;;) {
    if (const Status round = Round(); !round.ok()) StoreFailed(round.message());
    std::unique_lock lock(mutex_);
    ++rounds_;
    if (finished_) return;
    // At the end the host looks more often, not to keep everybody waiting.
    const milliseconds pause = leaving_ ? std::min(interval_, milliseconds(50)) : interval_;
    const bool leaving = leaving_;
    changed_.wait_for(lock, pause,
                      [&] { return finished_ || accused_ >= 0 || leaving_ != leaving; });
    if (finished_) return;
  }
}

Status Liveness::Round() {
  bool leaving;
  {
    std::lock_guard lock(mutex_);
    leaving = leaving_;
  }
  EQ_RETURN_IF_ERROR(PublishAccusation());
  const std::string state = leaving ? kDone : std::to_string(++beats_);
  EQ_RETURN_IF_ERROR(store_->Set(StateKey(options_.rank), state));
  EQ_ASSIGN_OR_RETURN(std::vector<std::string> states, store_->Get(keys_));
  const std::string blame = std::move(states.back());
  states.pop_back();
  if (blame != kNobody) {
    Convict(blame);
    return {};
  }
  if (leaving && (!HostsStore() || AllDone(states))) {
    std::lock_guard lock(mutex_);
    finished_ = told_ = true;
    changed_.notify_all();
    return {};
  }
  LookAtPeers(states);
  return {};
}

// Only the first accusation stands: a worker that stopped because of it is not accused again.
Status Liveness::PublishAccusation() {
  int accused;
  std::string why;
  {
    std::lock_guard lock(mutex_);
    accused = accused_;
    why = accusation_;
  }
  if (accused < 0) return {};
  return store_->CompareSet(kBlameKey, kNobody, std::to_string(accused) + ":" + why).status();
}

void Liveness::LookAtPeers(const std::vector<std::string>& states) {
  clock_.Tick();
  for (int r = 0; r < options_.world_size; ++r) {
    Peer& peer = peers_[static_cast<size_t>(r)];
    const std::string& state = states[static_cast<size_t>(r)];
    if (state != peer.state) peer = {state, clock_.now()};
    const milliseconds silent = clock_.now() - peer.changed;
    if (r == options_.rank || state == kDone || silent <= patience_) continue;
    Accuse(r, Worker(r) + " has not been heard of for " + Seconds(silent) +
                  ": it may have died, frozen or lost its network");
    return;
  }
}

bool Liveness::AllDone(const std::vector<std::string>& states) const {
  return std::all_of(states.begin(), states.end(), [](const auto& s) { return s == kDone; });
}

void Liveness::Convict(const std::string& blame) {
  const size_t colon = blame.find(':');
  const int culprit = std::atoi(blame.substr(0, colon).c_str());
  LetOthersLearn(culprit);
  bool mine;
  {
    std::lock_guard lock(mutex_);
    mine = culprit == options_.rank && !failing_;
  }
  const std::string why = blame.substr(colon + 1);
  Settle(Unavailable(mine ? "the other workers gave this one up: " + why : why));
}

// Whoever hosts the store must not end before the others have read the blame there, or they
// would take the missing store for the cause.
void Liveness::LetOthersLearn(int culprit) {
  if (!store_->Set(LearntKey(options_.rank), "1").ok() || !HostsStore()) return;
  std::vector<std::string> others;
  for (int r = 0; r < options_.world_size; ++r) {
    if (r != culprit && peers_[static_cast<size_t>(r)].state != kDone) {
      others.push_back(LearntKey(r));
    }
  }
  (void)store_->WaitFor(others, 2 * interval_ + milliseconds(500));
}

void Liveness::StoreFailed(const std::string& why) {
  Settle(Unavailable(options_.rank_0_hosts_store
                         ? "worker 0, which hosts the rendezvous store, was lost: it has died "
                           "or lost its network (" +
                               why + ")"
                         : options_.store_name + " was lost (" + why + ")"));
}

void Liveness::WatchLoop() {
  LivedTime clock(2 * interval_);
  uint64_t seen = 0;
  milliseconds since{0};
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, interval_, [&] { return finished_; });
      if (finished_) return;
      clock.Tick();
      if (rounds_ != seen) since = clock.now();
      seen = rounds_;
    }
    if (clock.now() - since <= patience_) continue;
    const std::string silence = Seconds(clock.now() - since);
    Settle(
        Unavailable(options_.rank_0_hosts_store
                        ? "worker 0, which hosts the rendezvous store, has not answered for " +
                              silence + ": it may have frozen or lost its network"
                        : options_.store_name + " has not answered for " + silence));
  }
}

void Liveness::Settle(const Status& verdict) {
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
    verdict_ = verdict;
    told_ = failing_;
    changed_.notify_all();
    if (told_) return;
  }
  // Before any waiting thread learns of it and ends the process in its own way.
  if (options_.on_lost) options_.on_lost(verdict);
  std::lock_guard lock(mutex_);
  told_ = true;
  changed_.notify_all();
}

void Liveness::Accuse(int rank, std::string why) {
  std::lock_guard lock(mutex_);
  if (accused_ >= 0) return;
  accused_ = rank;
  accusation_ = std::move(why);
  changed_.notify_all();
}

Status Liveness::Blame(int peer, const std::string& why) {
  Accuse(peer, Worker(peer) + " was lost: it has ended or lost its network (" + why + ")");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return told_; });
  if (!verdict_.ok()) return verdict_;
  return Unavailable(Worker(peer) + " was lost after this worker had left: " + why);
}

void Liveness::Fail(const Status& why) {
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    failing_ = true;
  }
  Accuse(options_.rank, Worker(options_.rank) + " stopped: " + why.ToString());
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_; });
}

void Liveness::Leave() {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return told_; });
}

Status Liveness::verdict() const {
  std::lock_guard lock(mutex_);
  return verdict_;
}

}  // namespace elastiquant
