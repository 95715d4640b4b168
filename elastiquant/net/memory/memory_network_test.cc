#include "elastiquant/net/memory/memory_network.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "elastiquant/net/store_contract.h"
#include "elastiquant/net/transport_contract.h"

namespace elastiquant {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<uint8_t>;

std::unique_ptr<Transport> Connect(MemoryNetwork& network, int rank) {
  TransportOptions options;
  options.rank = rank;
  options.world_size = 3;
  return network.At(rank)->Connect(options).value();
}

Bytes Numbered(int number) {
  return Bytes(static_cast<size_t>(number % 7 + 1), static_cast<uint8_t>(number));
}

TEST(MemoryNetwork, KeepsTheContractOfStores) {
  MemoryNetwork network;
  ExpectStoreContract(*network.At());
}

TEST(MemoryNetwork, KeepsTheContractOfTransports) {
  MemoryNetwork network;
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < 3; ++rank) transports.push_back(Connect(network, rank));
  ExpectTransportContract(transports);
}

TEST(MemoryNetwork, SaysWhereThereIsNoStoreOrNoPort) {
  MemoryNetwork network;
  const auto missing = network.At()->ConnectStore("any", 9, "", milliseconds(30));
  EXPECT_NE(missing.status().message().find("no rendezvous store at port 9"),
            std::string::npos);
  auto host = network.At()->HostStore(9, Reach::kAnywhere);
  ASSERT_TRUE(host.ok());
  EXPECT_NE(network.At()->HostStore(9, Reach::kAnywhere).status().message().find("in use"),
            std::string::npos);
  host->reset();
  EXPECT_TRUE(network.At()->HostStore(9, Reach::kAnywhere).ok());
}

// Delays differ and a third of the messages are sent again, and still none overtakes another.
TEST(MemoryNetwork, KeepsOrderWhateverTheDelay) {
  MemoryNetwork network({.least_delay = std::chrono::microseconds(0),
                         .most_delay = std::chrono::microseconds(3000),
                         .loss = 1.0 / 3,
                         .retransmission = milliseconds(5),
                         .seed = 4});
  const auto from = Connect(network, 0), to = Connect(network, 1);
  constexpr int kMessages = 60;
  for (int m = 0; m < kMessages; ++m) {
    const Bytes bytes = Numbered(m);
    EXPECT_TRUE(from->Send(1, static_cast<uint32_t>(m % 2), bytes)
                    .value()
                    ->WaitUntil(kNoDeadline)
                    .ok());
  }
  for (const int tag : {1, 0}) {
    for (int m = tag; m < kMessages; m += 2) {
      Bytes room(8);
      ASSERT_TRUE(to->Receive(0, static_cast<uint32_t>(tag), room)
                      .value()
                      ->WaitUntil(kNoDeadline)
                      .ok());
      EXPECT_TRUE(std::equal(room.begin(), room.begin() + m % 7 + 1, Numbered(m).begin()));
    }
  }
}

TEST(MemoryNetwork, TakesTheDelay) {
  MemoryNetwork network({.least_delay = milliseconds(40), .most_delay = milliseconds(40)});
  const auto from = Connect(network, 0), to = Connect(network, 1);
  const auto begin = Clock::now();
  Bytes room(1);
  const auto receive = to->Receive(0, 0, room).value();
  ASSERT_TRUE(from->Send(1, 0, Bytes{5}).value()->WaitUntil(kNoDeadline).ok());
  ASSERT_TRUE(receive->WaitUntil(kNoDeadline).ok());
  EXPECT_GE(Clock::now() - begin, milliseconds(40));
  EXPECT_EQ(room[0], 5);
}

TEST(MemoryNetwork, RefusesAMessageForWhichThereIsNoRoom) {
  MemoryNetwork network;
  const auto from = Connect(network, 0), to = Connect(network, 1);
  Bytes room(3);
  const auto receive = to->Receive(0, 0, room).value();
  ASSERT_TRUE(from->Send(1, 0, Bytes(4)).value()->WaitUntil(kNoDeadline).ok());
  EXPECT_EQ(receive->WaitUntil(kNoDeadline).status().code(), StatusCode::kUnavailable);
}

// A buffer whose posting is gone is not written to: under AddressSanitizer that would show.
TEST(MemoryNetwork, ForgetsAReceiveThatWasGivenUp) {
  MemoryNetwork network;
  const auto from = Connect(network, 0), to = Connect(network, 1);
  {
    Bytes gone(4);
    const auto receive = to->Receive(0, 0, gone).value();
    receive->Abort();
    EXPECT_FALSE(receive->WaitUntil(kNoDeadline).ok());
  }
  Bytes room(4);
  const auto receive = to->Receive(0, 0, room).value();
  ASSERT_TRUE(from->Send(1, 0, Bytes{1, 2, 3, 4}).value()->WaitUntil(kNoDeadline).ok());
  ASSERT_TRUE(receive->WaitUntil(kNoDeadline).ok());
  EXPECT_EQ(room, (Bytes{1, 2, 3, 4}));
}

TEST(MemoryNetwork, AKilledWorkerIsGoneForAll) {
  MemoryNetwork network;
  const auto host = network.At(2)->HostStore(0, Reach::kAnywhere).value();
  const auto store =
      network.At(0)->ConnectStore("any", host->port(), "", milliseconds(1000)).value();
  const auto alive = Connect(network, 0), victim = Connect(network, 2);
  Bytes room(1), victims(1);
  const auto receive = alive->Receive(2, 0, room).value();
  const auto victims_receive = victim->Receive(0, 0, victims).value();
  network.Kill(2);
  EXPECT_NE(receive->WaitUntil(kNoDeadline).status().message().find("closed by the peer"),
            std::string::npos);
  EXPECT_NE(victims_receive->WaitUntil(kNoDeadline).status().message().find("killed"),
            std::string::npos);
  EXPECT_FALSE(alive->Send(2, 0, Bytes(1)).ok());
  EXPECT_FALSE(victim->Send(0, 0, Bytes(1)).ok());
  EXPECT_EQ(store->Set("a", "1").code(), StatusCode::kUnavailable);
}

TEST(MemoryNetwork, AFrozenWorkerStandsStillUntilItThaws) {
  MemoryNetwork network;
  const auto host = network.At(1)->HostStore(0, Reach::kAnywhere).value();
  const auto store =
      network.At(0)->ConnectStore("any", host->port(), "", milliseconds(1000)).value();
  const auto from = Connect(network, 0), frozen = Connect(network, 1);
  Bytes room(1);
  const auto receive = frozen->Receive(0, 0, room).value();
  network.Freeze(1);
  ASSERT_TRUE(from->Send(1, 0, Bytes{9}).value()->WaitUntil(kNoDeadline).ok());
  std::optional<Clock::time_point> waited, stored;
  std::thread waiter([&] {
    EXPECT_TRUE(receive->WaitUntil(kNoDeadline).ok());
    waited = Clock::now();
  });
  std::thread setter([&] {
    EXPECT_TRUE(store->Set("a", "1").ok());
    stored = Clock::now();
  });
  std::this_thread::sleep_for(milliseconds(50));
  const auto thawed = Clock::now();
  network.Thaw(1);
  waiter.join();
  setter.join();
  EXPECT_GE(*waited, thawed);
  EXPECT_GE(*stored, thawed);
  EXPECT_EQ(room[0], 9);
}

TEST(MemoryNetwork, ACutPathLosesMessagesBothWaysAndNoOthers) {
  MemoryNetwork network;
  const auto a = Connect(network, 0), b = Connect(network, 1), c = Connect(network, 2);
  network.Cut(1, 0);
  Bytes at_a(1), at_b(1), at_c(1);
  const auto a_waits = a->Receive(1, 0, at_a).value();
  const auto b_waits = b->Receive(0, 0, at_b).value();
  const auto c_waits = c->Receive(0, 0, at_c).value();
  ASSERT_TRUE(a->Send(1, 0, Bytes{1}).value()->WaitUntil(kNoDeadline).ok());
  ASSERT_TRUE(b->Send(0, 0, Bytes{1}).value()->WaitUntil(kNoDeadline).ok());
  ASSERT_TRUE(a->Send(2, 0, Bytes{3}).value()->WaitUntil(kNoDeadline).ok());
  ASSERT_TRUE(c_waits->WaitUntil(kNoDeadline).ok());
  EXPECT_EQ(at_c[0], 3);
  a_waits->Abort();
  b_waits->Abort();
  EXPECT_EQ(a_waits->WaitUntil(kNoDeadline).status().message(), "aborted");
  EXPECT_EQ(b_waits->WaitUntil(kNoDeadline).status().message(), "aborted");
}

TEST(MemoryNetwork, EndsAllWaitsWhenItGoes) {
  auto network = std::make_unique<MemoryNetwork>();
  const auto end = Connect(*network, 0);
  Bytes room(1);
  const auto receive = end->Receive(1, 0, room).value();
  std::thread waiter([&] { EXPECT_FALSE(receive->WaitUntil(kNoDeadline).ok()); });
  network.reset();
  waiter.join();
  EXPECT_FALSE(end->Send(1, 0, Bytes(1)).ok());
}

}  // namespace
}  // namespace elastiquant
