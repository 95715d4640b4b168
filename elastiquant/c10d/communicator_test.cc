#include "elastiquant/net/communicator.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>

#include "elastiquant/c10d/testing.h"
#include "elastiquant/net/link.h"

namespace elastiquant {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<uint8_t>;

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

Bytes Pattern(size_t n, int salt) {
  Bytes bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(i * 31 + i / 256 + salt);
  return bytes;
}

TEST(Communicator, ReceivesLessThanThereIsRoomForAndTellsTheSize) {
  RunWorld(GlooWorldOptions(2), [](Communicator& comm) {
    uint64_t sent = 0;
    for (const size_t n : {1, 2, 31, 1448, 65536, 3000001}) {
      const Bytes out = Pattern(n, comm.rank());
      const int peer = 1 - comm.rank();
      auto receive = comm.Receive(peer, 7, n + 5000);
      auto send = comm.Send(peer, 7, out);
      const auto size = receive->Wait();
      ASSERT_TRUE(size.ok()) << size.status().ToString();
      ASSERT_EQ(*size, n);
      EXPECT_TRUE(std::ranges::equal(receive->bytes(), Pattern(n, peer)));
      const auto done = send->Wait();
      ASSERT_TRUE(done.ok());
      EXPECT_EQ(*done, n);
      sent += n + kMessageHeaderBytes;
    }
    EXPECT_EQ(comm.traffic().bytes_up, sent);
    EXPECT_EQ(comm.traffic().bytes_down, sent);
    EXPECT_GT(comm.traffic().transmit_seconds, 0);
  });
}

// A peer that dies while we write to it must not take us along. In a process of its own: others
// may have turned the signal off, and it may end the process.
[[noreturn]] void ConnectAndWriteToABrokenPipe() {
  TestTcpStore();
  std::signal(SIGPIPE, SIG_DFL);
  RunWorld(GlooWorldOptions(2), [](Communicator& comm) { ASSERT_TRUE(comm.Barrier().ok()); });
  int ends[2] = {};
  if (pipe(ends) != 0) _exit(1);
  close(ends[0]);
  const ssize_t written = write(ends[1], "x", 1);
  _exit(written < 0 && errno == EPIPE ? 0 : 1);
}

TEST(CommunicatorDeathTest, SurvivesBrokenPipes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ConnectAndWriteToABrokenPipe(), testing::ExitedWithCode(0), "");
}

TEST(Communicator, KeepsOrderWithinATagAndTagsApart) {
  RunWorld(GlooWorldOptions(2), [](Communicator& comm) {
    constexpr int kMessages = 20;
    const int peer = 1 - comm.rank();
    std::vector<Bytes> out, in;
    std::vector<std::unique_ptr<Transfer>> sends;
    for (int m = 0; m < kMessages; ++m) {
      for (const int tag : {0, (1 << 24) - 1}) {
        out.push_back(Bytes(static_cast<size_t>(m + 1), static_cast<uint8_t>(m + tag)));
      }
    }
    for (size_t k = 0; k < out.size(); ++k) {
      sends.push_back(comm.Send(peer, k % 2 == 0 ? 0 : (1 << 24) - 1, out[k]));
    }
    for (const size_t tag : {1, 0}) {  // the other way round than they were sent
      for (size_t k = tag; k < out.size(); k += 2) {
        const auto receive = comm.Receive(peer, tag == 0 ? 0 : (1 << 24) - 1, 100);
        const auto size = receive->Wait();
        ASSERT_TRUE(size.ok()) << size.status().ToString();
        EXPECT_TRUE(std::ranges::equal(receive->bytes(), out[k]));
      }
    }
    for (auto& send : sends) EXPECT_TRUE(send->Wait().ok());
  });
}

TEST(Communicator, ControlPlaneIsNotCounted) {
  RunWorld(GlooWorldOptions(5), [](Communicator& comm) {
    for (uint64_t round = 0; round < 10; ++round) {
      ASSERT_TRUE(comm.Barrier().ok());
      const auto all = comm.AllGather(100 * round + static_cast<uint64_t>(comm.rank()));
      ASSERT_TRUE(all.ok()) << all.status().ToString();
      for (uint64_t r = 0; r < 5; ++r) EXPECT_EQ((*all)[r], 100 * round + r);
      const int root = static_cast<int>(round % 5);
      Bytes bytes = comm.rank() == root ? Pattern(10001, root) : Bytes(10001);
      ASSERT_TRUE(comm.Broadcast(root, bytes).ok());
      EXPECT_EQ(bytes, Pattern(10001, root));
    }
    EXPECT_TRUE(comm.Broadcast(0, {}).ok());
    EXPECT_EQ(comm.traffic().bytes_up, 0u);
    EXPECT_EQ(comm.traffic().bytes_down, 0u);
  });
}

TEST(Communicator, RefusesNonsense) {
  RunWorld(GlooWorldOptions(2), [](Communicator& comm) {
    Bytes buffer(4);
    EXPECT_EQ(comm.Send(2, 0, buffer)->Wait().status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(comm.Send(comm.rank(), 0, buffer)->Wait().status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(comm.Receive(-1, 0, 10)->Wait().status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(comm.Send(1 - comm.rank(), 1 << 24, buffer)->Wait().status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(comm.Send(1 - comm.rank(), 0, {})->Wait().status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(comm.Broadcast(7, buffer).code(), StatusCode::kInvalidArgument);
  });
}

TEST(Communicator, AWorldOfOneNeedsNoStore) {
  auto comm = Communicator::Connect({});
  ASSERT_TRUE(comm.ok());
  EXPECT_TRUE((*comm)->Barrier().ok());
  EXPECT_EQ((*comm)->AllGather(5).value(), std::vector<uint64_t>{5});
  Bytes byte(1);
  EXPECT_FALSE((*comm)->Send(0, 0, byte)->Wait().ok());
}

// Everyone sends n bytes to everyone else: the link of 8 Mbit/s carries a byte in a
// microsecond.
void TimeExchange(int world, size_t n) {
  CommunicatorOptions options = GlooWorldOptions(world);
  options.link = LinkSpec{8e6, 0.02};
  RunWorld(options, [=](Communicator& comm) {
    const Bytes out = Pattern(n, 0);
    std::vector<std::unique_ptr<Transfer>> transfers;
    ASSERT_TRUE(comm.Barrier().ok());
    const auto start = Clock::now();
    for (int k = 1; k < world; ++k) {
      const int peer = (comm.rank() + k) % world;
      transfers.push_back(comm.Receive(peer, 0, n));
      transfers.push_back(comm.Send(peer, 0, out));
    }
    for (auto& transfer : transfers) ASSERT_TRUE(transfer->Wait().ok());
    const double took = Seconds(Clock::now() - start);
    const double wire =
        (world - 1) * static_cast<double>(WireBytes(n + kMessageHeaderBytes)) * 1e-6;
    // The ranks leave the barrier within moments of each other. How much later than the formula
    // says it may be depends on who else uses the machine.
    EXPECT_GT(took, 0.9 * (wire + 0.02));
    EXPECT_LT(took, 3 * (wire + 0.02) + 5);
    EXPECT_NEAR(comm.traffic().transmit_seconds, wire, 1e-6);
  });
}

TEST(EmulatedLink, TwoExchangeAtItsRate) { TimeExchange(2, 200000); }
TEST(EmulatedLink, FourExchangeAtItsRate) { TimeExchange(4, 70000); }

TEST(EmulatedLink, FlowsToOneReceiverShareItsDownlink) {
  constexpr size_t kBytes = 100000;
  CommunicatorOptions options = GlooWorldOptions(4);
  options.link = LinkSpec{8e6, 0};
  RunWorld(options, [](Communicator& comm) {
    const auto start = Clock::now();  // before any of them sends
    ASSERT_TRUE(comm.Barrier().ok());
    Bytes buffer(kBytes);
    if (comm.rank() > 0) {
      EXPECT_TRUE(comm.Send(0, 0, buffer)->Wait().ok());
      return;
    }
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (int r = 1; r < 4; ++r) {
      transfers.push_back(comm.Receive(r, 0, kBytes));
    }
    for (auto& transfer : transfers) EXPECT_TRUE(transfer->Wait().ok());
    EXPECT_GT(Seconds(Clock::now() - start), 0.9 * 3 * kBytes * 1e-6);
  });
}

// What each rank's Connect gives when rank r is started with options[r].
std::vector<Status> ConnectAll(const std::vector<CommunicatorOptions>& options) {
  std::vector<Status> statuses(options.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] { statuses[i] = Communicator::Connect(options[i]).status(); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

TEST(Connect, ChecksItsOptions) {
  CommunicatorOptions options = GlooWorldOptions(2);
  options.rank = 2;
  EXPECT_EQ(Communicator::Connect(options).status().code(), StatusCode::kInvalidArgument);
  options.rank = 0;
  options.world_size = 0;
  EXPECT_EQ(Communicator::Connect(options).status().code(), StatusCode::kInvalidArgument);
  options.world_size = 2;
  options.store_port = 0;
  EXPECT_TRUE(Contains(Communicator::Connect(options).status().message(), "port"));
}

TEST(Connect, TwoWorkersOfOneRankAreRefusedEverywhere) {
  const CommunicatorOptions options = GlooWorldOptions(3);
  std::vector<CommunicatorOptions> all(3, options);
  all[1].rank = all[2].rank = 1;
  for (const Status& status : ConnectAll(all)) {
    EXPECT_TRUE(Contains(status.message(), "two workers claim rank 1")) << status.ToString();
  }
}

TEST(Connect, WorldSizesThatDisagreeAreRefusedEverywhere) {
  const CommunicatorOptions options = GlooWorldOptions(3);
  std::vector<CommunicatorOptions> all(2, options);
  all[1].rank = 1;
  all[1].world_size = 2;
  for (const Status& status : ConnectAll(all)) {
    EXPECT_TRUE(Contains(status.message(), "world")) << status.ToString();
    EXPECT_TRUE(Contains(status.message(), "same world size")) << status.ToString();
  }
}

TEST(Connect, NamesTheWorkersThatDoNotCome) {
  CommunicatorOptions options = GlooWorldOptions(4);
  options.connect_timeout = std::chrono::milliseconds(1000);
  std::vector<CommunicatorOptions> all(2, options);
  all[1].rank = 2;
  for (const Status& status : ConnectAll(all)) {
    EXPECT_TRUE(Contains(status.message(), "did not come within 1 s: 1, 3"))
        << status.ToString();
  }
}

// It waits for a little, or the others would only see its store end.
TEST(Connect, WhoeverHostsTheStoreLetsTheOthersLearnWhoIsMissing) {
  CommunicatorOptions options = GlooWorldOptions(3);
  options.store_is_external = false;
  options.store_port = FreePort();
  options.connect_timeout = std::chrono::milliseconds(1000);
  std::vector<CommunicatorOptions> all(2, options);
  all[1].rank = 1;
  all[1].connect_timeout = std::chrono::minutes(1);
  for (const Status& status : ConnectAll(all)) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_TRUE(Contains(status.message(), "did not come within 1 s: 2")) << status.ToString();
  }
}

TEST(Connect, APortInUseIsSaid) {
  CommunicatorOptions options = GlooWorldOptions(2);
  options.store_is_external = false;  // where the test's own store listens already
  const Status status = Communicator::Connect(options).status();
  EXPECT_TRUE(Contains(status.message(), "in use")) << status.ToString();
  EXPECT_TRUE(Contains(status.message(), std::to_string(options.store_port)));
}

TEST(Connect, NoStoreIsSaid) {
  CommunicatorOptions options = GlooWorldOptions(2);
  options.rank = 1;
  options.connect_timeout = std::chrono::milliseconds(1000);
  options.store_port = 1;  // needs root to listen on, and nobody does
  const Status status = Communicator::Connect(options).status();
  EXPECT_TRUE(Contains(status.message(), "no rendezvous store at 127.0.0.1:1"))
      << status.ToString();
}

class Environment : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : kNames) unsetenv(name);
  }
  static constexpr const char* kNames[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                                           "TORCHELASTIC_USE_AGENT_STORE"};
  static void Set(const char* name, const char* value) { setenv(name, value, 1); }
};

TEST_F(Environment, IsReadAsTorchrunSetsIt) {
  Set("RANK", "3");
  Set("WORLD_SIZE", "4");
  Set("MASTER_ADDR", "10.0.0.1");
  Set("MASTER_PORT", "29500");
  Set("TORCHELASTIC_USE_AGENT_STORE", "True");
  const CommunicatorOptions options = OptionsFromEnvironment().value();
  EXPECT_EQ(options.rank, 3);
  EXPECT_EQ(options.world_size, 4);
  EXPECT_EQ(options.store_host, "10.0.0.1");
  EXPECT_EQ(options.store_port, 29500);
  EXPECT_TRUE(options.store_is_external);
}

TEST_F(Environment, ErrorsNameTheVariable) {
  Set("WORLD_SIZE", "4");
  EXPECT_TRUE(Contains(OptionsFromEnvironment().status().message(), "RANK"));
  Set("RANK", "4");
  EXPECT_TRUE(Contains(OptionsFromEnvironment().status().message(), "RANK is \"4\""));
  Set("RANK", "0");
  Set("MASTER_ADDR", "h");
  Set("MASTER_PORT", "29500x");
  EXPECT_TRUE(Contains(OptionsFromEnvironment().status().message(), "MASTER_PORT"));
}

}  // namespace
}  // namespace elastiquant
