// Workers of a crew that live in threads over a network in memory, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elastiquant/net/crew/crew.h"
#include "elastiquant/net/crew/crew_pulse.h"
#include "elastiquant/net/forwarding_testing.h"
#include "elastiquant/net/memory/memory_network.h"

namespace elastiquant {

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
                                              std::chrono::milliseconds timeout) override {
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
    options.job.timeout = std::chrono::milliseconds(2000);
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
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
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

}  // namespace elastiquant
