// A store that does not answer one worker for a while, and then does.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elastiquant/net/communicator.h"
#include "elastiquant/net/forwarding_testing.h"
#include "elastiquant/net/memory/testing.h"
#include "elastiquant/net/network.h"
#include "elastiquant/net/store.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;

// What keeps a worker's store from answering.
struct Silence {
  std::atomic<bool> began{false};
  std::latch over{1};
};

class SilentStore final : public ForwardingStore {
 public:
  SilentStore(std::unique_ptr<Store> store, std::shared_ptr<Silence> silence)
      : ForwardingStore(std::move(store)), silence_(std::move(silence)) {}

  Result<std::vector<std::string>> Get(const std::vector<std::string>& keys) override {
    if (silence_->began) silence_->over.wait();
    return ForwardingStore::Get(keys);
  }

 private:
  const std::shared_ptr<Silence> silence_;
};

class NetworkOfASilentStore final : public ForwardingNetwork {
 public:
  NetworkOfASilentStore(std::shared_ptr<Network> network, std::shared_ptr<Silence> silence)
      : ForwardingNetwork(std::move(network)), silence_(std::move(silence)) {}

  Result<std::unique_ptr<Store>> ConnectStore(const std::string& host, uint16_t port,
                                              const std::string& prefix,
                                              milliseconds timeout) override {
    EQ_ASSIGN_OR_RETURN(auto store,
                        ForwardingNetwork::ConnectStore(host, port, prefix, timeout));
    return std::unique_ptr<Store>(std::make_unique<SilentStore>(std::move(store), silence_));
  }

 private:
  const std::shared_ptr<Silence> silence_;
};

// Worker 0 stops because the store is silent, which ends what it waits for. When the store
// answers again, worker 0 must not tell the others that its peer ended it.
TEST(SilentStoreTest, TheWorkerThatItIsSilentToAccusesNoPeer) {
  MemoryNetwork network;
  const auto host = network.At()->HostStore(0, Reach::kThisMachine).value();
  const auto silence = std::make_shared<Silence>();
  std::vector<Status> ends(3);
  std::vector<int> lost(3, -1);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    CommunicatorOptions options = WorldOptions(3);
    options.job = "silent store";
    options.network = network.At(r);
    options.store_port = host->port();
    if (r == 0) {
      options.network = std::make_shared<NetworkOfASilentStore>(network.At(0), silence);
      options.timeout = milliseconds(1000);  // it gives up long before the others miss it
    }
    threads.push_back(StartWorker(options, r, [&](Communicator& comm) {
      const auto at = static_cast<size_t>(comm.rank());
      ASSERT_TRUE(comm.Barrier().ok());
      if (comm.rank() == 0) silence->began = true;
      ends[at] = comm.Receive(comm.rank() == 0 ? 1 : 0, 1, 8)->Wait().status();
      if (comm.rank() == 0) silence->over.count_down();
      lost[at] = comm.lost_rank().value_or(-1);
    }));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(ends[0].message().find("has not answered for"), std::string::npos)
      << ends[0].ToString();
  EXPECT_EQ(lost[0], -1);
  for (const size_t r : {1, 2}) {
    EXPECT_NE(ends[r].message().find("worker 0"), std::string::npos) << ends[r].ToString();
    EXPECT_EQ(lost[r], 0);
  }
}

}  // namespace
}  // namespace elastiquant
