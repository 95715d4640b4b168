#include "elastiquant/net/liveness.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "elastiquant/base/number.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

constexpr char kBlameKey[] = "blame";
constexpr char kNobody[] = "nobody";
constexpr char kLives = '+';  // follows the rank of a blamed worker whose heart still beats
constexpr char kStarting[] = "about to begin";
constexpr milliseconds kEnding{500};
constexpr std::chrono::minutes kLongestFarewell{30};

std::string StateKey(int rank) { return "state/" + std::to_string(rank); }
std::string LearntKey(int rank) { return "learnt/" + std::to_string(rank); }

std::string Seconds(milliseconds t) {
  const std::string tenths = std::to_string(t.count() % 1000 / 100);
  return std::to_string(t.count() / 1000) + (tenths == "0" ? "" : "." + tenths) + " s";
}

}  // namespace

void LivedTime::Tick(milliseconds busy) {
  const auto now = std::chrono::steady_clock::now();
  now_ += std::min(longest_ + busy, std::chrono::duration_cast<milliseconds>(now - last_));
  last_ = now;
}

Status Liveness::Announce(Store& store, int rank) {
  EQ_RETURN_IF_ERROR(store.CompareSet(kBlameKey, "", kNobody).status());
  return store.Set(StateKey(rank), WorkerState{.activity = kStarting}.Encode());
}

Liveness::Liveness(std::shared_ptr<Store> store, LivenessOptions options)
    : options_(std::move(options)),
      interval_(std::clamp(options_.timeout / 10, milliseconds(20), milliseconds(1000))),
      // A beat may just have been missed, and the verdict takes a round to reach everybody.
      patience_(std::max(options_.timeout - 2 * interval_, 2 * interval_)),
      store_(std::move(store)),
      clock_(2 * interval_),
      peers_(static_cast<size_t>(options_.world_size)),
      running_(std::make_shared<Running>()) {
  for (int r = 0; r < options_.world_size; ++r) keys_.push_back(StateKey(r));
  keys_.push_back(kBlameKey);
}

// The threads hold what they work on: one may be left behind in a store that does not answer.
std::shared_ptr<Liveness> Liveness::Start(std::shared_ptr<Store> store,
                                          LivenessOptions options) {
  std::shared_ptr<Liveness> liveness(new Liveness(std::move(store), std::move(options)));
  liveness->running_->threads = 2;
  for (const auto loop : {&Liveness::BeatLoop, &Liveness::WatchLoop}) {
    std::thread([liveness, loop]() mutable {
      const std::shared_ptr<Running> running = liveness->running_;
      ((*liveness).*loop)();
      liveness.reset();
      const std::lock_guard lock(running->mutex);
      --running->threads;
      running->changed.notify_all();
    }).detach();
  }
  return liveness;
}

void Liveness::BeatLoop() {
  for (;;) {
    if (const Status round = Round(); !round.ok()) StoreFailed(round.message());
    std::unique_lock lock(mutex_);
    ++rounds_;
    if (finished_) return;
    // At the end it looks more often, not to keep its process waiting.
    const bool ends = leaving_ || needs_nobody_;
    const milliseconds pause = ends ? std::min(interval_, milliseconds(50)) : interval_;
    const bool leaving = leaving_;
    changed_.wait_for(lock, pause,
                      [&] { return finished_ || accused_ >= 0 || leaving_ != leaving; });
    if (finished_) return;
  }
}

Status Liveness::Round() {
  const WorkerState mine = MyState();
  EQ_RETURN_IF_ERROR(store_->Set(StateKey(options_.rank), mine.Encode()));
  EQ_ASSIGN_OR_RETURN(std::vector<std::string> states, store_->Get(keys_));
  std::string blame = std::move(states.back());
  states.pop_back();
  TakeIn(states);
  if (blame == kNobody) {
    EQ_ASSIGN_OR_RETURN(blame, PublishAccusation());
  }
  if (blame != kNobody) {
    Convict(blame);
  } else if (mine.departure) {
    if (!IsNeeded()) return Go(mine);
  } else if (mine.released.contains(0) && HostsStore(0)) {
    left_at_ = clock_.now();
    if (OthersAreDone()) return Go(mine);
  } else {
    left_at_ = clock_.now();
    LookAtPeers();
    LookForStall(mine);
  }
  return {};
}

WorkerState Liveness::MyState() {
  WorkerState mine{.beats = ++beats_,
                   .ended = options_.ledger->ended(),
                   .waits_for = options_.ledger->waits_for()};
  mine.waits_for.erase(options_.rank);
  bool leaving;
  {
    const std::lock_guard lock(mutex_);
    leaving = leaving_;
    mine.activity = activity_;
    if (leaving) mine.departure = Departure{farewell_, options_.ledger->accounts()};
  }
  for (int r = 0; r < options_.world_size; ++r) {
    if (r == options_.rank || !peers_[static_cast<size_t>(r)].state.departure) continue;
    bool released = !options_.ledger->receives_from(r) &&
                    !(options_.ledger->receives_from_any() && HasMoreForUs(r));
    if (HostsStore(r)) {
      if (leaving) continue;  // and needs the store for that
      released = LetsHostGo(r);
    }
    if (released) mine.released.insert(r);
  }
  return mine;
}

// The host of the store has left. Without the store there is nobody to tell of anything, so
// that nothing can be begun any more once nothing is under way here.
bool Liveness::LetsHostGo(int host) {
  const std::lock_guard lock(mutex_);
  host_has_left_ = Unavailable(WordsOfDeparture(host));
  needs_nobody_ = options_.ledger->CloseIfIdle();
  return needs_nobody_;
}

void Liveness::TakeIn(const std::vector<std::string>& states) {
  clock_.Tick();
  for (size_t r = 0; r < states.size(); ++r) {
    Peer& peer = peers_[r];
    if (states[r] == peer.text) continue;
    WorkerState state = WorkerState::Parse(states[r]);
    const milliseconds moved = state.ended == peer.state.ended ? peer.moved : clock_.now();
    peer = {states[r], std::move(state), clock_.now(), moved};
  }
}

// Returns who is blamed then. Only the first accusation stands: a worker that stopped because
// of it is not accused again.
Result<std::string> Liveness::PublishAccusation() {
  int accused;
  bool lives;
  std::string why;
  {
    std::lock_guard lock(mutex_);
    accused = accused_;
    lives = accused_lives_;
    why = accusation_;
  }
  if (accused < 0) return std::string(kNobody);
  // Its connections end when it has left, which is what was noticed.
  if (accused != options_.rank && peers_[static_cast<size_t>(accused)].state.departure) {
    why = WordsOfDeparture(accused);
  }
  const std::string blame =
      std::to_string(accused) + (lives ? std::string(1, kLives) : "") + ":" + why;
  EQ_ASSIGN_OR_RETURN(std::string stands, store_->CompareSet(kBlameKey, kNobody, blame));
  return stands;
}

void Liveness::LookAtPeers() {
  int departed = -1;
  bool may_get_more = false;  // by a receive from any
  for (int r = 0; r < options_.world_size; ++r) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    if (r == options_.rank) continue;
    if (!peer.state.departure || HasMoreForUs(r)) may_get_more = true;
    if (peer.state.departure) {
      departed = r;
      if (HasNotSentEnough(r)) return Accuse(r, WordsOfDeparture(r));
    } else if (IsSilent(peer)) {
      return Accuse(r, options_.names(r) + " has not been heard of for " +
                           Seconds(clock_.now() - peer.beaten) +
                           ": it may have died, frozen or lost its network");
    }
  }
  if (options_.ledger->receives_from_any() && !may_get_more) {
    Accuse(departed, WordsOfDeparture(departed));
  }
}

// Some thread here has waited for long, and no message came or went meanwhile.
void Liveness::LookForStall(const WorkerState& mine) {
  if (mine.waits_for.empty() || mine.ended != ended_) got_on_ = clock_.now();
  ended_ = mine.ended;
  if (options_.stall_timeout.count() == 0 || clock_.now() - got_on_ <= options_.stall_timeout) {
    return;
  }
  std::vector<WorkerState> states;
  std::vector<milliseconds> still;
  for (const Peer& peer : peers_) {
    states.push_back(peer.state);
    still.push_back(clock_.now() - peer.moved);
  }
  const Stall stall = FindStall(states, still, options_.rank, options_.names,
                                Seconds(options_.stall_timeout) + " (stall_timeout)");
  Accuse(stall.culprit, stall.words, /*lives=*/true);
}

// We wait for a message that this worker, which has left, will never send or take.
bool Liveness::HasNotSentEnough(int rank) const {
  const Departure& left = *peers_[static_cast<size_t>(rank)].state.departure;
  const Ledger::Account theirs = left.accounts[static_cast<size_t>(options_.rank)];
  const Ledger::Account mine = options_.ledger->accounts()[static_cast<size_t>(rank)];
  return mine.received > theirs.sent || mine.sent > theirs.received;
}

// Returns whether this worker, which has left, has sent messages that have not been received
// yet, so that a receive from any may still take them.
bool Liveness::HasMoreForUs(int rank) const {
  const Departure& left = *peers_[static_cast<size_t>(rank)].state.departure;
  return left.accounts[static_cast<size_t>(options_.rank)].sent >
         options_.ledger->accounts()[static_cast<size_t>(rank)].received;
}

// By anybody who lives, after this worker has left.
bool Liveness::IsNeeded() const {
  // Whoever needs it for longer is stuck.
  const bool never = options_.stall_timeout.count() == 0;
  const milliseconds patience = never ? kLongestFarewell : options_.stall_timeout;
  if (clock_.now() - left_at_ > patience + options_.timeout) return false;
  for (int r = 0; r < options_.world_size; ++r) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    // Whoever leaves, or lets the host go, has received all that it wants, but still comes to
    // the store.
    const bool has_all = peer.state.departure || peer.state.released.contains(options_.rank);
    const bool needs_nothing = r == options_.rank || peer.state.gone || IsSilent(peer) ||
                               (has_all && !HostsStore(options_.rank));
    if (!needs_nothing) return true;
  }
  return false;
}

// Whether all but the host of the store, which has left, need nobody any more either: then
// none of them watches this worker, or waits for what it has sent.
bool Liveness::OthersAreDone() const {
  for (int r = 0; r < options_.world_size; ++r) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    const bool is_done = r == options_.rank || HostsStore(r) || IsSilent(peer) ||
                         peer.state.departure || peer.state.gone ||
                         peer.state.released.contains(0);
    if (!is_done) return false;
  }
  return true;
}

// The last that this worker does with the store.
Status Liveness::Go(WorkerState mine) {
  mine.gone = true;
  EQ_RETURN_IF_ERROR(store_->Set(StateKey(options_.rank), mine.Encode()));
  Finish();
  return {};
}

std::string Liveness::WordsOfDeparture(int rank) const {
  return options_.names(rank) + " has left (" +
         peers_[static_cast<size_t>(rank)].state.departure->why + ") while " +
         options_.names(options_.rank) + " still waits for it";
}

void Liveness::Convict(const std::string& blame) {
  const size_t colon = blame.find(':');
  std::string_view rank = std::string_view(blame).substr(0, colon);
  const bool lives = rank.ends_with(kLives);
  if (lives) rank.remove_suffix(1);
  int culprit = -1;
  if (!ParseNumber(rank, &culprit)) {
    return Settle(Unavailable(options_.store_name + " holds a blame that no worker writes: \"" +
                              blame + "\""));
  }
  bool failing;
  {
    std::lock_guard lock(mutex_);
    failing = failing_;
    culprit_ = culprit;
  }
  LetOthersLearn(lives ? std::nullopt : std::optional(culprit),
                 /*linger=*/failing || HostsStore(options_.rank));
  const bool mine = culprit == options_.rank && !failing;
  const std::string why = blame.substr(colon + 1);
  Settle(Unavailable(mine ? "the other workers gave this one up: " + why : why));
}

// Whoever hosts the store must not end before the others have read the blame there, or they
// would take the missing store for the cause. Nor should the one that failed, because the end
// of its process may make a launcher end theirs before they have said why. `dead` will read
// nothing any more; there is none when two wait for each other, for example.
void Liveness::LetOthersLearn(std::optional<int> dead, bool linger) {
  if (!store_->Set(LearntKey(options_.rank), "1").ok() || !linger) return;
  {
    const std::lock_guard lock(mutex_);
    ++rounds_;  // the store has answered, so the wait below must not count as its silence
  }
  std::vector<std::string> others;
  for (int r = 0; r < options_.world_size; ++r) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    const bool is_done = peer.state.departure || peer.state.gone;
    if (r != dead && !is_done && !IsSilent(peer)) others.push_back(LearntKey(r));
  }
  (void)store_->WaitFor(others, 2 * interval_ + milliseconds(500));
}

void Liveness::StoreFailed(const std::string& why) {
  Settle(Unavailable(options_.rank_0_hosts_store
                         ? "worker 0, which hosts the rendezvous store, was lost: it has died, "
                           "frozen or lost its network (" +
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

// All is well, and nobody needs this worker or its watching any more.
void Liveness::Finish() {
  const std::lock_guard lock(mutex_);
  finished_ = told_ = true;
  changed_.notify_all();
}

void Liveness::Settle(const Status& verdict) {
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
    // Whoever leaves, or needs nobody and has missed nothing, has done its part.
    const bool is_done = leaving_ || (needs_nobody_ && accused_ < 0);
    told_ = failing_ || is_done || !verdict_.ok();  // HostHasLeft may have told it
    if (verdict_.ok() && (!is_done || failing_)) verdict_ = verdict;
    changed_.notify_all();
    if (told_) return;
  }
  // Before any waiting thread learns of it and ends the process in its own way.
  if (options_.on_lost) options_.on_lost(verdict);
  std::lock_guard lock(mutex_);
  told_ = true;
  changed_.notify_all();
}

void Liveness::Accuse(int rank, std::string why, bool lives) {
  std::lock_guard lock(mutex_);
  // Once there is a verdict, waits end because of it and not because of a peer. The beating
  // thread may still be in its last round, in which it would publish the accusation.
  if (accused_ >= 0 || finished_) return;
  accused_ = rank;
  accused_lives_ = lives;
  accusation_ = std::move(why);
  changed_.notify_all();
}

void Liveness::SetActivity(std::string activity) {
  const std::lock_guard lock(mutex_);
  activity_ = std::move(activity);
}

void Liveness::SetFarewell(std::string why) {
  const std::lock_guard lock(mutex_);
  farewell_ = std::move(why);
}

Status Liveness::Blame(int peer, const std::string& why) {
  Accuse(peer,
         options_.names(peer) + " was lost: it has ended or lost its network (" + why + ")");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return told_; });
  if (!verdict_.ok()) return verdict_;
  lock.unlock();
  EQ_RETURN_IF_ERROR(HostHasLeft());
  return Unavailable(options_.names(peer) + " was lost after this worker had left: " + why);
}

Status Liveness::Explain(const std::string& why) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience_, [&] { return told_; });
  if (!verdict_.ok()) return verdict_;
  return Unavailable("waiting for a message from any worker failed: " + why);
}

Status Liveness::HostHasLeft() {
  Status why;
  {
    const std::lock_guard lock(mutex_);
    if (!verdict_.ok() || host_has_left_.ok()) return verdict_;
    verdict_ = why = host_has_left_;
  }
  if (options_.on_lost) options_.on_lost(why);
  return why;
}

std::optional<int> Liveness::culprit() const {
  const std::lock_guard lock(mutex_);
  return culprit_;
}

void Liveness::Fail(const Status& why) {
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    failing_ = true;
  }
  Accuse(options_.rank, options_.names(options_.rank) + " stopped: " + why.message());
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_; });
}

void Liveness::Leave() {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return told_; });
  lock.unlock();
  // One may be stuck in a store that does not answer, and is left there.
  std::unique_lock running(running_->mutex);
  running_->changed.wait_for(running, kEnding, [&] { return running_->threads == 0; });
}

}  // namespace elastiquant
