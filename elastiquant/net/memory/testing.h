// Worlds for tests, in which threads are the ranks, each with a communicator of its own, on a
// network in memory.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/net/communicator.h"
#include "elastiquant/net/memory/memory_network.h"
#include "elastiquant/net/store.h"

namespace elastiquant {

// Returns the one network of a test program, on which no fault strikes anybody.
inline std::shared_ptr<Network> TestNetwork() {
  static MemoryNetwork* network = new MemoryNetwork;
  static const std::shared_ptr<Network> end = network->At();
  return end;
}

// Returns the one store of a test program, which lives until the program ends.
inline StoreHost& TestStore() {
  static StoreHost* host = TestNetwork()->HostStore(0, Reach::kThisMachine).value().release();
  return *host;
}

// Returns options for the ranks of one new world on the test program's store.
inline CommunicatorOptions WorldOptions(int world_size) {
  static std::atomic<int> worlds{0};
  CommunicatorOptions options;
  options.world_size = world_size;
  options.network = TestNetwork();
  options.store_port = TestStore().port();
  options.store_is_external = true;
  options.job = "world" + std::to_string(worlds++);
  options.timeout = std::chrono::seconds(5);  // worlds end with a heartbeat, a tenth of it
  options.connect_timeout = std::chrono::minutes(1);  // the machine may be busy
  options.on_peer_lost = [](const Status&) {};
  return options;
}

// Returns options for the ranks of a world whose worker 0 hosts the store, as it does without a
// launcher. They are for RunWorld on a network of its own.
inline CommunicatorOptions HostedWorldOptions(int world_size,
                                              std::chrono::milliseconds timeout) {
  CommunicatorOptions options;
  options.world_size = world_size;
  options.store_port = 1;
  options.timeout = timeout;
  options.connect_timeout = std::chrono::minutes(1);  // the machine may be busy
  options.on_peer_lost = [](const Status&) {};
  return options;
}

// Names a test by its number of workers: Of16. Sanitizers need few workers to find what they
// look for, and .ci/run leaves out those of 16 and 32 by such names.
inline std::string WorldName(const testing::TestParamInfo<int>& workers) {
  return "Of" + std::to_string(workers.param);
}

// Starts a thread that connects as `rank` and calls body(communicator). If `network` is given,
// the rank has a place of its own on it, so that faults of the network can strike it alone.
inline std::thread StartWorker(CommunicatorOptions options, int rank,
                               const std::function<void(Communicator&)>& body,
                               MemoryNetwork* network = nullptr) {
  options.rank = rank;
  if (network != nullptr) options.network = network->At(rank);
  return std::thread([=] {
    auto comm = Communicator::Connect(options);
    ASSERT_TRUE(comm.ok()) << comm.status().ToString();
    body(**comm);
  });
}

// Runs all ranks of a world at once, and returns when all have ended.
inline void RunWorld(const CommunicatorOptions& options,
                     const std::function<void(Communicator&)>& body,
                     MemoryNetwork* network = nullptr) {
  std::vector<std::thread> threads;
  for (int r = 0; r < options.world_size; ++r) {
    threads.push_back(StartWorker(options, r, body, network));
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace elastiquant
