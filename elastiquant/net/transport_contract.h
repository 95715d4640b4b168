// The contract that every transport must keep, whatever it is made of, for tests of each kind.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "elastiquant/net/transport.h"

namespace elastiquant {

using Transports = std::vector<std::unique_ptr<Transport>>;

inline Deadline DeadlineIn(std::chrono::milliseconds time) {
  return Deadline::clock::now() + time;
}

inline void ExpectToSend(Transport& from, int to, uint32_t tag,
                         const std::vector<uint8_t>& bytes) {
  const auto done = from.Send(to, tag, bytes).value()->WaitUntil(kNoDeadline);
  ASSERT_TRUE(done.ok()) << done.status().ToString();
  EXPECT_TRUE(*done);
}

// A deadline ends the waiting, not the receive.
inline void ExpectDeadlines(const Transports& transports) {
  std::vector<uint8_t> room(5);
  const auto receive = transports[0]->Receive(1, 7, room).value();
  const auto begin = Deadline::clock::now();
  for (int time = 0; time < 3; ++time) {
    const auto early = receive->WaitUntil(DeadlineIn(std::chrono::milliseconds(20)));
    ASSERT_TRUE(early.ok()) << early.status().ToString();
    EXPECT_FALSE(*early);
  }
  EXPECT_GE(Deadline::clock::now() - begin, std::chrono::milliseconds(60));
  EXPECT_FALSE(receive->WaitUntil(begin).value());
  ExpectToSend(*transports[1], 0, 7, {1, 2, 3});
  const auto come = receive->WaitUntil(DeadlineIn(std::chrono::seconds(60)));
  ASSERT_TRUE(come.ok()) << come.status().ToString();
  EXPECT_TRUE(*come);
  EXPECT_EQ(room, (std::vector<uint8_t>{1, 2, 3, 0, 0}));
  EXPECT_EQ(receive->peer(), 1);
}

// What came before anybody looked is seen also by whoever has no time to wait.
inline void ExpectPolling(const Transports& transports) {
  ExpectToSend(*transports[1], 0, 8, {4});
  std::vector<uint8_t> room(1);
  const auto receive = transports[0]->Receive(1, 8, room).value();
  const auto patience = DeadlineIn(std::chrono::seconds(60));
  while (!receive->WaitUntil(Deadline::clock::now()).value()) {
    ASSERT_LT(Deadline::clock::now(), patience);
  }
  EXPECT_EQ(room[0], 4);
}

inline void ExpectReceivesFromAny(const Transports& transports) {
  std::vector<uint8_t> early(4), late(4);
  const auto waiting = transports[0]->Receive(kAnyPeer, 9, early).value();
  EXPECT_FALSE(waiting->WaitUntil(DeadlineIn(std::chrono::milliseconds(20))).value());
  ExpectToSend(*transports[2], 0, 9, {2, 2});
  ASSERT_TRUE(waiting->WaitUntil(kNoDeadline).ok());
  EXPECT_EQ(waiting->peer(), 2);
  EXPECT_EQ(early, (std::vector<uint8_t>{2, 2, 0, 0}));

  // These come before they are asked for, each peer's in its order.
  for (const int salt : {10, 20}) {
    for (const int peer : {1, 2}) {
      const std::vector<uint8_t> bytes{static_cast<uint8_t>(peer + salt)};
      ExpectToSend(*transports[static_cast<size_t>(peer)], 0, 9, bytes);
    }
  }
  std::vector<std::vector<int>> came(3);
  for (int message = 0; message < 4; ++message) {
    const auto receive = transports[0]->Receive(kAnyPeer, 9, late).value();
    ASSERT_TRUE(receive->WaitUntil(kNoDeadline).ok());
    ASSERT_TRUE(receive->peer() == 1 || receive->peer() == 2);
    came[static_cast<size_t>(receive->peer())].push_back(late[0]);
  }
  EXPECT_EQ(came[1], (std::vector<int>{11, 21}));
  EXPECT_EQ(came[2], (std::vector<int>{12, 22}));
}

inline void ExpectAborts(const Transports& transports, int from, uint32_t tag) {
  std::vector<uint8_t> room(1);
  const auto receive = transports[0]->Receive(from, tag, room).value();
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    receive->Abort();
  });
  EXPECT_EQ(receive->WaitUntil(DeadlineIn(std::chrono::seconds(60))).status().code(),
            StatusCode::kUnavailable);
  aborter.join();
}

// `transports` are those of three workers, by rank.
inline void ExpectTransportContract(const Transports& transports) {
  ASSERT_EQ(transports.size(), 3u);
  ExpectDeadlines(transports);
  ExpectPolling(transports);
  ExpectReceivesFromAny(transports);
  ExpectAborts(transports, 1, 10);
  ExpectAborts(transports, kAnyPeer, 11);
}

}  // namespace elastiquant
