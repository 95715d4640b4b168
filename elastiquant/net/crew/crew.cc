#include "elastiquant/net/crew/crew.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "elastiquant/base/contains.h"
#include "elastiquant/base/stopwatch.h"
#include "elastiquant/net/crew/changing_communicator.h"
#include "elastiquant/net/crew/crew_pulse.h"
#include "elastiquant/net/liveness.h"
#include "elastiquant/net/rendezvous.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

constexpr char kOverKey[] = "over";
constexpr char kWell[] = "well";
// After how many time-outs a worker hangs that meets the others, and one that connects to them.
// Connecting may take longer: where there is no path, Gloo tries it for five time-outs.
constexpr int kToMeet = 4, kToConnect = 12;
constexpr milliseconds kLook{20};  // how often the store is looked into by workers that meet

std::string LivesKey(int worker) { return "lives/" + std::to_string(worker); }

// What the threads of a group's communicator tell of it. They may outlive the group.
struct Fate {
  std::mutex mutex;
  bool broken = false;
  Status verdict;

  void Break(const Status& why) {
    const std::lock_guard lock(mutex);
    if (broken) return;
    broken = true;
    verdict = why;
  }
};

// Ends the process if nothing has happened for too long.
class Watchdog {
 public:
  Watchdog(milliseconds patience, std::function<void()> bite)
      : patience_(patience), thread_([this, bite = std::move(bite)] { Watch(bite); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      off_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  // Begins to wait anew, for so many times its patience.
  void Calm(int patiences = 1) {
    const std::lock_guard lock(mutex_);
    calm_ = patiences;
  }

 private:
  // Looks often, so that time in which the whole process stands still counts as one look.
  void Watch(const std::function<void()>& bite) {
    const milliseconds look = patience_ / kLooks;
    std::unique_lock lock(mutex_);
    int left = kLooks;
    while (!changed_.wait_for(lock, look, [&] { return off_; })) {
      if (const int patiences = std::exchange(calm_, 0)) left = kLooks * patiences;
      if (left-- > 0) continue;
      lock.unlock();
      return bite();
    }
  }

  static constexpr int kLooks = 20;
  const milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int calm_ = 0;  // for how many patiences Calm has asked; 0: it has not
  bool off_ = false;
  std::thread thread_;  // started when the rest is there
};

// In which group of its crew a worker begins.
struct Place {
  bool newcomer = false;
  int number = 0;  // of the group
  std::vector<int> group{};
};

// Fails if another process of this name lives.
Status CheckIsAlone(Store& store, int worker, milliseconds interval) {
  EQ_ASSIGN_OR_RETURN(const bool known, store.Exists(HeartKey(worker)));
  if (!known) return {};
  EQ_ASSIGN_OR_RETURN(const auto before, store.Get({HeartKey(worker)}));
  std::this_thread::sleep_for(interval * 5 / 2);
  EQ_ASSIGN_OR_RETURN(const auto after, store.Get({HeartKey(worker)}));
  if (before == after) return {};
  return InvalidArgument("two workers claim rank " + std::to_string(worker) +
                         ": give each its own rank, and each job its own port");
}

// A newcomer begins with the newest group.
Result<Place> FindPlace(Store& store, int worker, int workers, milliseconds interval) {
  Place place{.group = std::vector<int>(static_cast<size_t>(workers))};
  std::iota(place.group.begin(), place.group.end(), 0);
  EQ_RETURN_IF_ERROR(store.CompareSet(GroupKey(0), "", EncodeGroup(place.group)).status());
  EQ_ASSIGN_OR_RETURN(const int64_t lives, store.Increment(LivesKey(worker)));
  if (lives == 1) return place;
  EQ_RETURN_IF_ERROR(CheckIsAlone(store, worker, interval));
  place.newcomer = true;
  EQ_ASSIGN_OR_RETURN(place.number, FindNewestGroup(store));
  EQ_ASSIGN_OR_RETURN(const auto list, store.Get({GroupKey(place.number)}));
  EQ_ASSIGN_OR_RETURN(place.group, ParseGroup(list[0]));
  return place;
}

// Counts the groups of the same workers that could not connect, one after the other.
class FailedGroups {
 public:
  void Add(const std::vector<int>& group) {
    count_ = group == group_ ? count_ + 1 : 1;
    group_ = group;
  }
  int count() const { return count_; }

 private:
  std::vector<int> group_;
  int count_ = 0;
};

class StoreCrew final : public Crew {
 public:
  explicit StoreCrew(CrewOptions options)
      : options_(std::move(options)),
        job_(options_.job),
        interval_(std::clamp(job_.timeout / 10, milliseconds(20), milliseconds(1000))) {
    if (options_.on_stuck) return;
    options_.on_stuck = [worker = worker()](const std::string& why) {
      std::fprintf(stderr, "elastiquant: worker %d stops: %s\n", worker, why.c_str());
      std::fflush(stderr);
      _exit(3);
    };
  }

  // The pulse ends before the communicator, for which the worker that hosts the store waits for
  // the others: none of them asks the store any more when it goes.
  ~StoreCrew() override { pulse_.reset(); }

  Status Begin();

  int worker() const override { return job_.rank; }
  int workers() const override { return job_.world_size; }
  const std::vector<int>& group() const override { return group_; }
  Communicator& comm() override { return comm_; }
  bool is_newcomer() const override { return newcomer_; }
  void Settle() override { newcomer_ = false; }
  bool newcomers_wait() const override { return pulse_->newcomers_wait(); }
  Status Check() override;
  bool is_broken() const override {
    const std::lock_guard lock(fate_->mutex);
    return fate_->broken;
  }
  Result<bool> Regroup(bool at_boundary) override;
  Status End(bool well) override { return EndTheRun(*store_, well); }

 private:
  Status HostStore();
  Result<std::unique_ptr<Store>> ConnectStore();
  Status BeginToBeat();
  Status Connect();
  void Enter(int number, std::vector<int> group);
  Status LeftBehind() const;
  int Endurance() const;
  Status GiveUp(int groups, const Status& why);
  Status CheckStoreStays(const std::vector<int>& group) const;
  std::set<int> LostOnes();
  Result<MusterOrder> Meet(const MusterOptions& options, Watchdog* watchdog);
  Result<MusterView> Look();

  CrewOptions options_;
  CommunicatorOptions job_;
  const milliseconds interval_;
  std::shared_ptr<Store> store_;
  std::unique_ptr<CrewPulse> pulse_;
  int number_ = 0;  // of the group, which grows by one with each
  std::vector<int> group_;
  bool newcomer_ = false;
  std::shared_ptr<Fate> fate_ = std::make_shared<Fate>();
  ChangingCommunicator comm_;
};

Status StoreCrew::HostStore() {
  if (worker() != 0 || job_.store_is_external || job_.store != nullptr) return {};
  EQ_ASSIGN_OR_RETURN(job_.store,
                      job_.network->HostStore(job_.store_port, ReachOf(job_.store_host)));
  return {};
}

Result<std::unique_ptr<Store>> StoreCrew::ConnectStore() {
  return job_.network->ConnectStore(job_.store_host, job_.store_port, CrewPrefix(job_.job),
                                    job_.connect_timeout);
}

Status StoreCrew::Begin() {
  EQ_RETURN_IF_ERROR(HostStore());
  EQ_ASSIGN_OR_RETURN(store_, ConnectStore());
  store_->SetPatience(job_.timeout);
  EQ_ASSIGN_OR_RETURN(Place place, AskStore(job_, [store = store_, worker = worker(),
                                                   workers = workers(), interval = interval_] {
                        return FindPlace(*store, worker, workers, interval);
                      }));
  newcomer_ = place.newcomer;
  EQ_RETURN_IF_ERROR(BeginToBeat());
  Enter(place.number, std::move(place.group));
  if (newcomer_) return {};
  const Watchdog watchdog(kToConnect * job_.connect_timeout, [this] {
    options_.on_stuck("the rendezvous store did not answer while the workers connected");
  });
  return Connect();
}

// On a connection of its own, which may have been lost: others must not wait for this worker in
// vain, time after time.
Status StoreCrew::BeginToBeat() {
  EQ_ASSIGN_OR_RETURN(auto store, ConnectStore());
  store->SetPatience(job_.timeout);
  pulse_ = std::make_unique<CrewPulse>(std::move(store), worker(), interval_);
  pulse_->SetGroup(number_);
  return {};
}

void StoreCrew::Enter(int number, std::vector<int> group) {
  number_ = number;
  group_ = std::move(group);
  pulse_->SetGroup(number);
  fate_ = std::make_shared<Fate>();
}

// Connects to the others of the group.
Status StoreCrew::Connect() {
  CommunicatorOptions options = job_;
  const auto self = std::ranges::find(group_, worker());
  options.rank = static_cast<int>(self - group_.begin());
  options.world_size = static_cast<int>(group_.size());
  options.job = job_.job + "/group" + std::to_string(number_);
  options.names = WorkerNames(group_);
  options.wires.clear();
  for (size_t rank = 0; rank < group_.size(); ++rank) {
    const auto wire = job_.wires.find(group_[rank]);
    if (wire != job_.wires.end()) options.wires[static_cast<int>(rank)] = wire->second;
  }
  if (number_ > 0) {
    options.connect_timeout = job_.timeout;
    options.refuses_alone = true;  // one that was taken for dead, and its replacement
  }
  options.on_peer_lost = [fate = fate_](const Status& verdict) { fate->Break(verdict); };
  auto comm = Communicator::Connect(options);
  if (!comm.ok()) {
    fate_->Break(comm.status());
    return comm.status();
  }
  comm_.Replace(std::move(*comm));
  return {};
}

Status StoreCrew::Check() {
  const auto behind = pulse_->IsLeftBehind(job_.timeout / 2, 2 * job_.timeout);
  if (!behind.ok()) {
    fate_->Break(behind.status());
  } else if (*behind) {
    fate_->Break(LeftBehind());
  }
  const std::lock_guard lock(fate_->mutex);
  return fate_->verdict;
}

Status StoreCrew::LeftBehind() const {
  return Unavailable("the other workers have gone on without worker " +
                     std::to_string(worker()));
}

// Whom the group has blamed for its end.
std::set<int> StoreCrew::LostOnes() {
  const std::optional<int> rank = comm_.lost_rank();
  if (!rank || *rank < 0 || static_cast<size_t>(*rank) >= group_.size()) return {};
  return {group_[static_cast<size_t>(*rank)]};
}

Result<bool> StoreCrew::Regroup(bool at_boundary) {
  Watchdog watchdog(kToMeet * job_.timeout, [this] {
    options_.on_stuck("the rendezvous store did not answer while the workers met to go on");
  });
  MusterOptions options{.worker = worker(),
                        .arrival = at_boundary ? Arrival::kBoundary : Arrival::kBroken,
                        .lost = LostOnes(),
                        .patience = job_.timeout};
  if (job_.stall_timeout.count() > 0) options.limit = job_.stall_timeout;
  comm_.Replace(nullptr);
  if (!pulse_->beats()) EQ_RETURN_IF_ERROR(BeginToBeat());
  FailedGroups failed;
  for (;;) {
    options.group = group_;
    if (newcomer_) options.arrival = Arrival::kNewcomer;
    EQ_ASSIGN_OR_RETURN(MusterOrder order, Meet(options, &watchdog));
    if (order.kind == MusterOrder::Kind::kGoHome) {
      EQ_ASSIGN_OR_RETURN(const RunEnd end, HowTheRunEnded(*store_));
      if (end == RunEnd::kWell) return false;
      return Unavailable("the run has ended with an error meanwhile");
    }
    if (order.kind == MusterOrder::Kind::kDespair) {
      return Unavailable(
          "no worker is left that knows how far the run has come: "
          "--resume goes on from its last checkpoint");
    }
    EQ_RETURN_IF_ERROR(CheckStoreStays(order.group));
    Enter(number_ + 1, std::move(order.group));
    options.lost.clear();
    if (order.kind == MusterOrder::Kind::kStayOut) {
      if (!options_.may_return) return LeftBehind();
      newcomer_ = true;
      continue;
    }
    watchdog.Calm(kToConnect / kToMeet);
    const Status connected = Connect();
    if (connected.ok()) return true;
    if (connected.code() != StatusCode::kUnavailable) return connected;
    failed.Add(group_);
    if (failed.count() >= Endurance()) return GiveUp(failed.count(), connected);
    options.arrival = Arrival::kBroken;  // somebody was lost before all had met
  }
}

// After how many groups in a row that could not connect this worker gives up, so that the path
// between two that stays broken does not keep all from going on. It differs between workers,
// because one has to leave and not both. Gloo connects a worker to the others one by one, in
// the order of their ranks: the lowest rank that fails has a broken path, and those behind it
// may only have waited for it. Newcomers, who come last in a group, go before those who can do
// without them, and whoever hosts the store goes last, as without it nobody goes on.
int StoreCrew::Endurance() const {
  constexpr int kTries = 3;
  if (worker() == 0 && !job_.store_is_external) return kTries + workers();
  const auto self = std::ranges::find(group_, worker());
  const auto before = newcomer_ ? group_.end() - self - 1 : self - group_.begin();
  return kTries + static_cast<int>(before);
}

// The others need not wait for its heart to stop.
Status StoreCrew::GiveUp(int groups, const Status& why) {
  EQ_RETURN_IF_ERROR(
      store_->Set(HereKey(number_ + 1, worker()), EncodeArrival(Arrival::kGivesUp)));
  return Unavailable(std::to_string(groups) + " groups in a row could not connect (" +
                     why.message() +
                     "): the others go on without this worker; check that the workers can "
                     "reach each other and not only the rendezvous store");
}

// Without the worker that hosts the store no group would last: it may end at any time.
Status StoreCrew::CheckStoreStays(const std::vector<int>& group) const {
  if (job_.store_is_external || Contains(group, 0)) return {};
  const std::lock_guard lock(fate_->mutex);
  const std::string& why = fate_->verdict.message();
  return Unavailable(
      "worker 0, which hosts the rendezvous store, does not go on with the others" +
      (why.empty() ? "" : " (" + why + ")") +
      ": start all workers again, from the last checkpoint if there is one");
}

// Returns an order to act on.
Result<MusterOrder> StoreCrew::Meet(const MusterOptions& options, Watchdog* watchdog) {
  const int next = number_ + 1;
  EQ_RETURN_IF_ERROR(store_->Set(HereKey(next, worker()), EncodeArrival(options.arrival)));
  if (options.arrival == Arrival::kNewcomer) {
    EQ_RETURN_IF_ERROR(store_->Set(NewcomerKey(next), "1"));
  }
  Muster muster(options);
  LivedTime clock(2 * interval_);
  double quickest = std::numeric_limits<double>::infinity();  // look, in seconds
  for (;;) {
    const Stopwatch looking;
    EQ_ASSIGN_OR_RETURN(const MusterView view, Look());
    watchdog->Calm();
    // A look asks the store many questions, each of which takes a delay of the link.
    quickest = std::min(quickest, looking.Seconds());
    clock.Tick(milliseconds(std::llround(quickest * 1000)));
    const MusterOrder order = muster.Look(view, clock.now());
    if (order.kind == MusterOrder::Kind::kPropose) {
      EQ_RETURN_IF_ERROR(
          store_->CompareSet(GroupKey(next), "", EncodeGroup(order.group)).status());
      continue;
    }
    if (order.kind != MusterOrder::Kind::kWait) return order;
    std::this_thread::sleep_for(kLook);
  }
}

// Reads what there is about the next group.
Result<MusterView> StoreCrew::Look() {
  MusterView view;
  const int next = number_ + 1;
  EQ_ASSIGN_OR_RETURN(view.over, store_->Exists(kOverKey));
  EQ_ASSIGN_OR_RETURN(const bool decided, store_->Exists(GroupKey(next)));
  if (decided) {
    EQ_ASSIGN_OR_RETURN(const auto list, store_->Get({GroupKey(next)}));
    EQ_ASSIGN_OR_RETURN(view.decided, ParseGroup(list[0]));
    return view;
  }
  for (int w = 0; w < workers(); ++w) {
    EQ_ASSIGN_OR_RETURN(const bool here, store_->Exists(HereKey(next, w)));
    EQ_ASSIGN_OR_RETURN(const bool beats, store_->Exists(HeartKey(w)));
    if (here) {
      EQ_ASSIGN_OR_RETURN(const auto text, store_->Get({HereKey(next, w)}));
      EQ_ASSIGN_OR_RETURN(view.here[w], ParseArrival(text[0]));
    }
    if (beats) {
      EQ_ASSIGN_OR_RETURN(const auto text, store_->Get({HeartKey(w)}));
      view.hearts[w] = text[0];
    }
  }
  return view;
}

}  // namespace

std::string CrewPrefix(const std::string& job) { return "elastiquant/" + job + "/crew/"; }

Result<RunEnd> HowTheRunEnded(Store& store) {
  EQ_ASSIGN_OR_RETURN(const bool over, store.Exists(kOverKey));
  if (!over) return RunEnd::kNotYet;
  EQ_ASSIGN_OR_RETURN(const auto how, store.Get({kOverKey}));
  return how[0] == kWell ? RunEnd::kWell : RunEnd::kFailed;
}

Status EndTheRun(Store& store, bool well) {
  return store.Set(kOverKey, well ? kWell : "failed");
}

Result<std::unique_ptr<Crew>> Crew::Start(const CrewOptions& options) {
  auto crew = std::make_unique<StoreCrew>(options);
  EQ_RETURN_IF_ERROR(crew->Begin());
  return std::unique_ptr<Crew>(std::move(crew));
}

}  // namespace elastiquant
