// The contract that every store must keep, whatever it is made of, for tests of each kind.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/net/network.h"

namespace elastiquant {

inline void ExpectStoreContract(Network& network) {
  using std::chrono::milliseconds;
  const auto host = network.HostStore(0, Reach::kThisMachine).value();
  ASSERT_NE(host->port(), 0);
  const auto connect = [&](const std::string& prefix) {
    return network.ConnectStore("127.0.0.1", host->port(), prefix, milliseconds(20000)).value();
  };
  const auto store = connect("job/"), same = connect("job/"), other = connect("other/");

  // A value is seen by all of the same prefix, and by nobody else.
  ASSERT_TRUE(store->Set("a", "1").ok());
  ASSERT_TRUE(store->Set("b", "").ok());
  EXPECT_EQ(same->Get({"a", "b"}).value(), (std::vector<std::string>{"1", ""}));
  EXPECT_TRUE(same->Exists("b").value());
  EXPECT_FALSE(other->Exists("a").value());
  ASSERT_TRUE(same->Set("a", "2").ok());
  EXPECT_EQ(store->Get({"a"}).value(), std::vector<std::string>{"2"});

  EXPECT_EQ(store->Increment("n").value(), 1);
  EXPECT_EQ(same->Increment("n").value(), 2);

  // The first who compares with "" sets a key that is missing; the others learn its value.
  EXPECT_EQ(store->CompareSet("c", "", "mine").value(), "mine");
  EXPECT_EQ(same->CompareSet("c", "", "yours").value(), "mine");
  EXPECT_EQ(same->CompareSet("c", "mine", "yours").value(), "yours");

  EXPECT_TRUE(store->WaitFor({"a", "c"}, milliseconds(0)).value());
  EXPECT_FALSE(store->WaitFor({"a", "late"}, milliseconds(50)).value());
  std::thread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_TRUE(same->Set("late", "x").ok());
  });
  EXPECT_TRUE(store->WaitFor({"a", "late"}, milliseconds(20000)).value());
  later.join();

  // Counting together loses nothing.
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const auto mine = connect("job/");
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(mine->Increment("together").ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->Increment("together").value(), 201);
}

}  // namespace elastiquant
