// The contract that every transport must keep, whatever it is made of, for tests of each kind.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "elastiquant/net/transport.h"

namespace elastiquant {

using Transports = std::vector<std::unique_ptr<Transport>>;

inline Deadline DeadlineIn(std::chrono::milliseconds time) {
  return Deadline::clock::now() + time;
}

inline void ExpectToEnd(Posting& posting) {
  const auto done = posting.WaitUntil(kNoDeadline);
  ASSERT_TRUE(done.ok()) << done.status().ToString();
  EXPECT_TRUE(*done);
}

// A deadline ends the waiting, not the receive. A send is waited for last, because it may end
// only when its message has been asked for.
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
  const std::vector<uint8_t> bytes{1, 2, 3};
  const auto send = transports[1]->Send(0, 7, bytes).value();
  const auto come = receive->WaitUntil(DeadlineIn(std::chrono::seconds(60)));
  ASSERT_TRUE(come.ok()) << come.status().ToString();
  EXPECT_TRUE(*come);
  EXPECT_EQ(room, (std::vector<uint8_t>{1, 2, 3, 0, 0}));
  EXPECT_EQ(receive->peer(), 1);
  ExpectToEnd(*send);
  EXPECT_EQ(send->peer(), 0);
}

// A message that has come is found also by a wait whose deadline has passed already.
inline void ExpectPolling(const Transports& transports) {
  const std::vector<uint8_t> bytes{4};
  const auto send = transports[1]->Send(0, 8, bytes).value();
  std::vector<uint8_t> room(1);
  const auto receive = transports[0]->Receive(1, 8, room).value();
  const auto patience = DeadlineIn(std::chrono::seconds(60));
  while (!receive->WaitUntil(Deadline::clock::now()).value()) {
    ASSERT_LT(Deadline::clock::now(), patience);
  }
  EXPECT_EQ(room[0], 4);
  ExpectToEnd(*send);
}

inline void ExpectReceivesFromAny(const Transports& transports) {
  std::vector<uint8_t> room(4);
  const std::vector<uint8_t> early{2, 2};
  const auto waiting = transports[0]->Receive(kAnyPeer, 9, room).value();
  EXPECT_FALSE(waiting->WaitUntil(DeadlineIn(std::chrono::milliseconds(20))).value());
  const auto send = transports[2]->Send(0, 9, early).value();
  ExpectToEnd(*waiting);
  EXPECT_EQ(waiting->peer(), 2);
  EXPECT_EQ(room, (std::vector<uint8_t>{2, 2, 0, 0}));
  ExpectToEnd(*send);

  // These messages are sent before they are asked for. Those of each peer keep their order.
  const std::vector<std::vector<uint8_t>> of_1{{11}, {21}}, of_2{{12}, {22}};
  std::vector<std::unique_ptr<Posting>> sends;
  for (size_t m = 0; m < 2; ++m) {
    sends.push_back(transports[1]->Send(0, 9, of_1[m]).value());
    sends.push_back(transports[2]->Send(0, 9, of_2[m]).value());
  }
  std::vector<std::vector<std::vector<uint8_t>>> came(3);
  for (size_t m = 0; m < 4; ++m) {
    std::vector<uint8_t> one(1);
    const auto receive = transports[0]->Receive(kAnyPeer, 9, one).value();
    ExpectToEnd(*receive);
    ASSERT_TRUE(receive->peer() == 1 || receive->peer() == 2);
    came[static_cast<size_t>(receive->peer())].push_back(one);
  }
  EXPECT_EQ(came[1], of_1);
  EXPECT_EQ(came[2], of_2);
  for (const auto& each : sends) ExpectToEnd(*each);
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
