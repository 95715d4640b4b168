#include "elastiquant/net/crew/crew.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elastiquant/net/crew/crew_pulse.h"
#include "elastiquant/net/crew/muster.h"
#include "elastiquant/net/forwarding_testing.h"
#include "elastiquant/net/memory/memory_network.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

// A store to which the connection breaks when a worker beats whose heart is to stop.
class BreakingStore final : public ForwardingStore {
 public:
  BreakingStore(std::unique_ptr<Store> store, std::atomic<int>* stopping)
      : ForwardingStore(std::move(store)), stopping_(stopping) {}

  Status Set(const std::string& key, const std::string& value) override {
    if (key == HeartKey(*stopping_)) {
      *stopping_ = -1;
      return Unavailable("the connection to the store has broken");
    }
    return ForwardingStore::Set(key, value);
  }

 private:
  std::atomic<int>* const stopping_;
};

// A network on which groups of some size cannot connect, although all reach the store, to which
// one worker may lose a connection.
class PathlessNetwork final : public ForwardingNetwork {
 public:
  PathlessNetwork(std::shared_ptr<Network> network, const std::atomic<int>* size,
                  std::atomic<int>* stopping)
      : ForwardingNetwork(std::move(network)), size_(size), stopping_(stopping) {}

  Result<std::unique_ptr<Store>> ConnectStore(const std::string& host, uint16_t port,
                                              const std::string& prefix,
                                              milliseconds timeout) override {
    EQ_ASSIGN_OR_RETURN(auto store,
                        ForwardingNetwork::ConnectStore(host, port, prefix, timeout));
    return std::unique_ptr<Store>(std::make_unique<BreakingStore>(std::move(store), stopping_));
  }

  Result<std::unique_ptr<Transport>> Connect(const TransportOptions& options) override {
    if (options.world_size == *size_) return Unavailable("there is no path");
    return ForwardingNetwork::Connect(options);
  }

 private:
  const std::atomic<int>* const size_;
  std::atomic<int>* const stopping_;
};

// Workers who, round by round, tell each other how many rounds they have made. One that comes
// later takes over the others' count.
class CrewWorld {
 public:
  static constexpr int kRounds = 30;

  explicit CrewWorld(int workers) : workers_(workers) {
    store_ = network_.At()->HostStore(0, Reach::kThisMachine).value();
  }

  CrewOptions OptionsOf(int worker, int host) {
    CrewOptions options;
    options.job.rank = worker;
    options.job.world_size = workers_;
    options.job.network = network_.At(host);
    if (worker != spared_) {
      options.job.network =
          std::make_shared<PathlessNetwork>(network_.At(host), &pathless_, &stopping_);
    }
    options.job.store_port = store_->port();
    options.job.store_is_external = !worker_0_hosts_store_;
    if (worker == 0 && worker_0_hosts_store_) options.job.store = store_;
    options.job.timeout = milliseconds(2000);
    options.job.connect_timeout = std::chrono::minutes(1);  // the machine may be busy
    options.on_stuck = [](const std::string& why) { ADD_FAILURE() << why; };
    options.may_return = may_return_;
    return options;
  }

  // What became of a worker.
  struct Outcome {
    Status status;
    uint64_t rounds = 0;
    std::vector<int> group{};
    std::vector<size_t> sizes{};       // of the groups, round by round
    std::vector<std::string> names{};  // of the group's workers, by their rank in it
  };

  // `before_round` may bring about a fault.
  void Start(int worker, const std::function<void(uint64_t round)>& before_round,
             Outcome* outcome) {
    threads_.emplace_back(
        [=, this] { Live(OptionsOf(worker, worker), before_round, outcome); });
  }
  // Starts it again, on another host, once `when` is there.
  void StartAgain(int worker, std::latch* when, Outcome* outcome) {
    threads_.emplace_back([=, this] {
      when->wait();
      Live(
          OptionsOf(worker, 100 + worker), [](uint64_t) {}, outcome);
    });
  }
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // Starts all workers, which do this before each of their rounds. The outcomes are there after
  // Join, and must live until then.
  void StartAll(const std::function<void(int worker, uint64_t round)>& before_round,
                std::vector<Outcome>* outcomes) {
    for (int w = 0; w < workers_; ++w) {
      Start(
          w, [=](uint64_t round) { before_round(w, round); },
          &(*outcomes)[static_cast<size_t>(w)]);
    }
  }
  void ForbidReturn() { may_return_ = false; }
  void LetWorker0HostTheStore() { worker_0_hosts_store_ = true; }
  // From now on. One worker may be spared, which connects to the others all the same.
  void LetNoGroupConnectOf(int workers) { pathless_ = workers; }
  void Spare(int worker) { spared_ = worker; }
  void StopTheHeartOf(int worker) { stopping_ = worker; }
  MemoryNetwork& network() { return network_; }

 private:
  static void Live(const CrewOptions& options,
                   const std::function<void(uint64_t)>& before_round, Outcome* outcome) {
    auto crew = Crew::Start(options);
    outcome->status = crew.status();
    if (crew.ok()) outcome->status = Work(**crew, before_round, outcome);
  }

  static Status Work(Crew& crew, const std::function<void(uint64_t)>& before_round,
                     Outcome* outcome) {
    if (crew.is_newcomer()) {
      EQ_ASSIGN_OR_RETURN(const bool goes_on, Regroup(crew, false, outcome));
      if (!goes_on) return {};
    }
    while (outcome->rounds < kRounds) {
      before_round(outcome->rounds);
      const Status status = Round(crew, outcome);
      if (status.ok()) continue;
      if (!crew.is_broken()) return status;
      EQ_ASSIGN_OR_RETURN(const bool goes_on, Regroup(crew, false, outcome));
      if (!goes_on) return {};
    }
    outcome->group = crew.group();
    for (int r = 0; r < crew.comm().world_size(); ++r) {
      outcome->names.push_back(crew.comm().names()(r));
    }
    std::ranges::sort(outcome->group);
    return crew.End(true);
  }

  static Status Round(Crew& crew, Outcome* outcome) {
    EQ_RETURN_IF_ERROR(crew.Check());
    EQ_ASSIGN_OR_RETURN(const auto heard, crew.comm().AllGather(crew.newcomers_wait()));
    bool newcomers = false;
    for (const uint64_t h : heard) newcomers = newcomers || h != 0;
    if (newcomers) return Regroup(crew, true, outcome).status();
    EQ_ASSIGN_OR_RETURN(const auto rounds, crew.comm().AllGather(outcome->rounds));
    for (const uint64_t round : rounds) EXPECT_EQ(round, outcome->rounds);
    ++outcome->rounds;
    outcome->sizes.push_back(rounds.size());
    std::this_thread::sleep_for(milliseconds(20));
    return {};
  }

  // Those that were further hand on how far they were.
  static Result<bool> Regroup(Crew& crew, bool at_boundary, Outcome* outcome) {
    for (;;) {
      EQ_ASSIGN_OR_RETURN(const bool goes_on, crew.Regroup(at_boundary));
      if (!goes_on) return false;
      const auto counts = crew.comm().AllGather(crew.is_newcomer() ? 0 : outcome->rounds);
      if (counts.ok()) {
        for (const uint64_t count : *counts) outcome->rounds = std::max(outcome->rounds, count);
        crew.Settle();
        return true;
      }
      if (!crew.is_broken()) return counts.status();
      at_boundary = false;
    }
  }

  const int workers_;
  bool may_return_ = true, worker_0_hosts_store_ = false;
  std::atomic<int> pathless_{0}, stopping_{-1};
  int spared_ = -1;
  MemoryNetwork network_;
  std::shared_ptr<StoreHost> store_;
  std::vector<std::thread> threads_;
};

void DoNothing(uint64_t) {}

// Three workers, of which one dies in its round 5.
std::vector<CrewWorld::Outcome> RunWithOneThatDies(CrewWorld& world, int victim) {
  std::vector<CrewWorld::Outcome> outcomes(3);
  for (int w = 0; w < 3; ++w) {
    const auto die = [&world, victim](uint64_t round) {
      if (round == 5) world.network().Kill(victim);
    };
    world.Start(w, w == victim ? std::function<void(uint64_t)>(die) : DoNothing,
                &outcomes[static_cast<size_t>(w)]);
  }
  world.Join();
  return outcomes;
}

TEST(CrewTest, TheOthersGoOnWithoutTheOneThatDies) {
  for (const int victim : {0, 2}) {
    CrewWorld world(3);
    const std::vector<CrewWorld::Outcome> outcomes = RunWithOneThatDies(world, victim);
    for (int w = 0; w < 3; ++w) {
      const CrewWorld::Outcome& outcome = outcomes[static_cast<size_t>(w)];
      EXPECT_EQ(outcome.status.ok(), w != victim) << outcome.status.ToString();
      if (w == victim) continue;
      EXPECT_EQ(outcome.rounds, CrewWorld::kRounds);
      EXPECT_EQ(outcome.group.size(), 2u);
    }
  }
}

// Its store may still answer: the worker may have stood still for too long.
TEST(CrewTest, NobodyGoesOnWithoutTheWorkerThatHostsTheStore) {
  CrewWorld world(3);
  world.LetWorker0HostTheStore();
  const std::vector<CrewWorld::Outcome> outcomes = RunWithOneThatDies(world, 0);
  for (const int w : {1, 2}) {
    const Status& status = outcomes[static_cast<size_t>(w)].status;
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("worker 0, which hosts the rendezvous store"),
              std::string::npos)
        << status.ToString();
  }
}

// Ranks change where a worker is lost, and names stay.
TEST(CrewTest, ErrorsNameWorkersAsTheyWereNamedAtFirst) {
  CrewWorld world(3);
  world.ForbidReturn();
  const std::vector<CrewWorld::Outcome> outcomes = RunWithOneThatDies(world, 0);
  for (const int w : {1, 2}) {
    EXPECT_EQ(outcomes[static_cast<size_t>(w)].names,
              (std::vector<std::string>{"worker 1", "worker 2"}));
  }
}

TEST(CrewTest, TwoMayDieAtOnceAndTheLastOneGoesOnAlone) {
  CrewWorld world(3);
  std::vector<CrewWorld::Outcome> outcomes(3);
  world.Start(
      0,
      [&](uint64_t round) {
        if (round != 5) return;
        world.network().Kill(0);
        world.network().Kill(1);
      },
      &outcomes[0]);
  world.Start(1, DoNothing, &outcomes[1]);
  world.Start(2, DoNothing, &outcomes[2]);
  world.Join();
  EXPECT_TRUE(outcomes[2].status.ok()) << outcomes[2].status.ToString();
  EXPECT_EQ(outcomes[2].group, std::vector<int>{2});
}

// Three workers, of which worker 1 stands still from its round 3 until the others are in
// round 10.
std::vector<CrewWorld::Outcome> RunWithOneFrozenForAWhile(CrewWorld& world) {
  std::vector<CrewWorld::Outcome> outcomes(3);
  world.StartAll(
      [&world](int w, uint64_t round) {
        if (w == 1 && round == 3) world.network().Freeze(1);
        if (w == 2 && round == 10) world.network().Thaw(1);
        // It needs some time to find out.
        if (w == 2 && round > 10) std::this_thread::sleep_for(milliseconds(100));
      },
      &outcomes);
  world.Join();
  return outcomes;
}

// It wakes up when the others have gone on, and is taken back between two of their rounds.
TEST(CrewTest, OneThatWasFrozenIsTakenBackAsANewcomer) {
  CrewWorld world(3);
  const std::vector<CrewWorld::Outcome> outcomes = RunWithOneFrozenForAWhile(world);
  for (const CrewWorld::Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.rounds, CrewWorld::kRounds);
    EXPECT_EQ(outcome.group, (std::vector<int>{0, 1, 2}));
  }
  EXPECT_LT(outcomes[1].sizes.size(), outcomes[0].sizes.size());
}

// It would break each group that it comes into.
TEST(CrewTest, OneWhoseHeartHasStoppedConnectsAnewAndStays) {
  CrewWorld world(3);
  std::vector<CrewWorld::Outcome> outcomes(3);
  world.StartAll(
      [&world](int w, uint64_t round) {
        if (w == 1 && round == 3) world.StopTheHeartOf(1);
        if (w == 2 && round > 3) std::this_thread::sleep_for(milliseconds(30));
      },
      &outcomes);
  world.Join();
  for (const CrewWorld::Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.rounds, CrewWorld::kRounds);
    EXPECT_EQ(outcome.group, (std::vector<int>{0, 1, 2}));
  }
}

TEST(CrewTest, OneThatMayNotReturnIsToldThatTheOthersHaveGoneOn) {
  CrewWorld world(3);
  world.ForbidReturn();
  const std::vector<CrewWorld::Outcome> outcomes = RunWithOneFrozenForAWhile(world);
  EXPECT_EQ(outcomes[1].status.code(), StatusCode::kUnavailable);
  EXPECT_NE(outcomes[1].status.message().find("have gone on without worker 1"),
            std::string::npos)
      << outcomes[1].status.ToString();
  for (const int w : {0, 2}) {
    const CrewWorld::Outcome& outcome = outcomes[static_cast<size_t>(w)];
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.group, (std::vector<int>{0, 2}));
  }
}

TEST(CrewTest, OneThatDiedAndIsStartedAgainIsTakenBack) {
  CrewWorld world(3);
  std::vector<CrewWorld::Outcome> outcomes(3);
  CrewWorld::Outcome again;
  std::latch later(1);
  world.StartAll(
      [&](int w, uint64_t round) {
        if (w == 0 && round == 3) world.network().Kill(0);
        if (w == 1 && round == 8) later.count_down();
        if (w == 1 && round > 8) std::this_thread::sleep_for(milliseconds(100));
      },
      &outcomes);
  world.StartAgain(0, &later, &again);
  world.Join();
  EXPECT_TRUE(again.status.ok()) << again.status.ToString();
  EXPECT_EQ(again.rounds, CrewWorld::kRounds);
  EXPECT_EQ(again.group, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(outcomes[1].group, again.group);
}

bool GaveUp(const CrewWorld::Outcome& outcome) {
  return outcome.status.code() == StatusCode::kUnavailable &&
         outcome.status.message().find(
             "groups in a row could not connect (there is no path)") != std::string::npos;
}

// Worker 3 of four dies, and then the other three cannot connect.
std::vector<CrewWorld::Outcome> RunWithABrokenPath(CrewWorld& world) {
  std::vector<CrewWorld::Outcome> outcomes(4);
  world.StartAll(
      [&world](int w, uint64_t round) {
        if (w != 3 || round != 5) return;
        world.LetNoGroupConnectOf(3);
        world.network().Kill(3);
      },
      &outcomes);
  world.Join();
  return outcomes;
}

// They would form the same group again and again.
TEST(CrewTest, OneLeavesAGroupThatCannotConnectAndTheOthersGoOn) {
  CrewWorld world(4);
  const std::vector<CrewWorld::Outcome> outcomes = RunWithABrokenPath(world);
  EXPECT_TRUE(GaveUp(outcomes[0])) << outcomes[0].status.ToString();
  for (const size_t w : {1, 2}) {
    EXPECT_TRUE(outcomes[w].status.ok()) << outcomes[w].status.ToString();
    EXPECT_EQ(outcomes[w].rounds, CrewWorld::kRounds);
    EXPECT_EQ(outcomes[w].group, (std::vector<int>{1, 2}));
  }
}

TEST(CrewTest, TheWorkerThatHostsTheStoreIsTheLastToLeaveAGroupThatCannotConnect) {
  CrewWorld world(4);
  world.LetWorker0HostTheStore();
  const std::vector<CrewWorld::Outcome> outcomes = RunWithABrokenPath(world);
  EXPECT_TRUE(GaveUp(outcomes[1])) << outcomes[1].status.ToString();
  for (const size_t w : {0, 2}) {
    EXPECT_TRUE(outcomes[w].status.ok()) << outcomes[w].status.ToString();
    EXPECT_EQ(outcomes[w].group, (std::vector<int>{0, 2}));
  }
}

// Worker 2 reaches both. It may go on without the one that it blames for the group's end, if
// that one comes late to the meeting, or without the one that gives up.
TEST(CrewTest, OneOfTwoThatCannotReachEachOtherLeaves) {
  CrewWorld world(4);
  world.ForbidReturn();
  world.Spare(2);
  const std::vector<CrewWorld::Outcome> outcomes = RunWithABrokenPath(world);
  EXPECT_NE(outcomes[0].status.ok(), outcomes[1].status.ok())
      << outcomes[0].status.ToString() << ", " << outcomes[1].status.ToString();
  EXPECT_TRUE(outcomes[2].status.ok()) << outcomes[2].status.ToString();
  EXPECT_EQ(outcomes[2].rounds, CrewWorld::kRounds);
  EXPECT_EQ(outcomes[2].group.size(), 2u);
}

// The others form their group without it in between.
TEST(CrewTest, ANewcomerToWhichThereIsNoPathGivesUp) {
  CrewWorld world(3);
  std::vector<CrewWorld::Outcome> outcomes(3);
  CrewWorld::Outcome again;
  std::latch later(1);
  world.StartAll(
      [&](int w, uint64_t round) {
        if (w == 1 && round == 3) world.network().Kill(1);
        if (w == 2 && round == 8) {
          world.LetNoGroupConnectOf(3);
          later.count_down();
        }
        // It needs some time to give up.
        if (w == 2 && round > 8) std::this_thread::sleep_for(milliseconds(200));
      },
      &outcomes);
  world.StartAgain(1, &later, &again);
  world.Join();
  EXPECT_TRUE(GaveUp(again)) << again.status.ToString();
  for (const size_t w : {0, 2}) {
    EXPECT_TRUE(outcomes[w].status.ok()) << outcomes[w].status.ToString();
    EXPECT_EQ(outcomes[w].group, (std::vector<int>{0, 2}));
  }
}

TEST(CrewTest, AStoreThatStandsStillIsNotWaitedForWithoutLimit) {
  MemoryNetwork network;
  const auto host = network.At(0)->HostStore(0, Reach::kThisMachine).value();
  network.Freeze(0);
  CrewOptions options;
  options.job.rank = 1;
  options.job.world_size = 2;
  options.job.network = network.At(1);
  options.job.store_port = host->port();
  options.job.connect_timeout = milliseconds(100);
  const Status status = Crew::Start(options).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("does not answer: worker 0, which hosts it"),
            std::string::npos)
      << status.ToString();
}

// Counts how often it is asked whether a key exists.
class CountingStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;

  Result<bool> Exists(const std::string& key) override {
    ++asked_;
    return ForwardingStore::Exists(key);
  }
  int asked() const { return asked_; }

 private:
  int asked_ = 0;
};

// A worker that comes back over a slow link asks for few of the groups of a long run.
TEST(CrewTest, TheNewestOfManyGroupsIsFoundInFewLooks) {
  MemoryNetwork network;
  const auto host = network.At()->HostStore(0, Reach::kThisMachine).value();
  const auto connect = [&] {
    return network.At()->ConnectStore("", host->port(), "", milliseconds(1000)).value();
  };
  const auto writer = connect();
  for (int newest = 0; newest <= 300; ++newest) {
    ASSERT_TRUE(writer->Set(GroupKey(newest), EncodeGroup({0, 1})).ok());
    CountingStore store(connect());
    EXPECT_EQ(FindNewestGroup(store).value(), newest);
    EXPECT_LE(store.asked(), 18);
  }
}

TEST(CrewTest, WhoeverComesBackWhenNobodyIsLeftSaysSo) {
  CrewWorld world(2);
  std::vector<CrewWorld::Outcome> outcomes(2);
  CrewWorld::Outcome again;
  std::latch later(1);
  world.Start(
      0,
      [&](uint64_t round) {
        if (round != 2) return;
        world.network().Kill(0);
        world.network().Kill(1);
        later.count_down();
      },
      &outcomes[0]);
  world.Start(1, DoNothing, &outcomes[1]);
  world.StartAgain(0, &later, &again);
  world.Join();
  EXPECT_EQ(again.status.code(), StatusCode::kUnavailable);
  EXPECT_NE(again.status.message().find("no worker is left"), std::string::npos)
      << again.status.ToString();
}

TEST(CrewTest, OnceTheRunIsOverNobodyNeedComeBack) {
  CrewWorld world(2);
  std::vector<CrewWorld::Outcome> outcomes(2);
  CrewWorld::Outcome again;
  std::latch later(1);
  for (int w = 0; w < 2; ++w) {
    world.Start(w, DoNothing, &outcomes[static_cast<size_t>(w)]);
  }
  world.Join();
  later.count_down();
  world.StartAgain(1, &later, &again);
  world.Join();
  EXPECT_TRUE(again.status.ok()) << again.status.ToString();
  EXPECT_EQ(again.rounds, 0u);
}

}  // namespace
}  // namespace elastiquant
