#include "elastiquant/net/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

using testing::HasSubstr;

TEST(LinksTest, AFileHasWiresAndAnAccessLink) {
  const auto links =
      ParseLinks("* 10mbit,5ms  # the rest\n\n3 1 1.5mbit\n0 1 1gbit,1us\n", "f");
  ASSERT_TRUE(links.ok()) << links.status().ToString();
  EXPECT_EQ(links->access->bits_per_second, 1e7);
  EXPECT_EQ(links->wires.size(), 2u);
  const auto wires = links->WiresOf(1);
  ASSERT_EQ(wires.size(), 2u);
  EXPECT_EQ(wires.at(3).bits_per_second, 1.5e6);
  EXPECT_EQ(wires.at(0).delay_seconds, 1e-6);
  EXPECT_TRUE(links->WiresOf(2).empty());
  EXPECT_TRUE(links->Check(4).ok());
  EXPECT_THAT(links->Check(3).message(), HasSubstr("a link of worker 3, and the last of 3"));
}

TEST(LinksTest, NamesTheLineThatIsNone) {
  for (const auto& [text, why] : std::vector<std::pair<const char*, const char*>>{
           {"0 1 1mbit\n0 1\n", "f, line 2: give 'A B RATE"},
           {"0 0 1mbit", "line 1: A and B must be numbers of two"},
           {"0 -1 1mbit", "numbers of two workers"},
           {"0 1x 1mbit", "numbers of two workers"},
           {"0 1 1parsec", "RATE is a number"},
           {"0 1 1mbit\n1 0 2mbit", "line 2: there is another line for these"},
           {"* 1mbit\n* 1mbit", "another line with '*'"},
           {"# none\n", "f has no link"}}) {
    const auto links = ParseLinks(text, "f");
    ASSERT_FALSE(links.ok()) << text;
    EXPECT_THAT(links.status().message(), HasSubstr(why)) << text;
  }
  EXPECT_THAT(ReadLinks("20 bananas").status().message(), HasSubstr("or give a file of links"));
  EXPECT_EQ(ReadLinks("20mbit,1ms")->access->delay_seconds, 1e-3);
}

// Two workers on a slow wire, and a third that both reach without one.
TEST(LinksTest, AWireSlowsItsOwnPairOnly) {
  CommunicatorOptions options = WorldOptions(3);
  const std::vector<uint8_t> bytes(100'000, 7);
  using std::chrono::steady_clock;
  steady_clock::time_point sent;
  std::vector<steady_clock::time_point> came(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    CommunicatorOptions own = options;
    if (r < 2) own.wires[1 - r] = {.bits_per_second = 4e6, .delay_seconds = .1};
    threads.push_back(StartWorker(own, r, [&](Communicator& comm) {
      const auto send = [&](int to) { return comm.Send(to, 1, bytes); };
      ASSERT_TRUE(comm.Barrier().ok());
      if (comm.rank() == 0) {
        sent = steady_clock::now();
        const auto slow = send(1), fast = send(2);  // the later one overtakes
        EXPECT_TRUE(fast->Wait().ok());
        EXPECT_TRUE(slow->Wait().ok());
      } else {
        const auto incoming = comm.Receive(0, 1, bytes.size());
        EXPECT_TRUE(incoming->Wait().ok());
        EXPECT_EQ(incoming->bytes().size(), bytes.size());
      }
      came[static_cast<size_t>(comm.rank())] = steady_clock::now();
      ASSERT_TRUE(comm.Barrier().ok());
    }));
  }
  for (std::thread& thread : threads) thread.join();
  // .2 s of the bytes, and the delay.
  EXPECT_GT(std::chrono::duration<double>(came[1] - sent).count(), .29);
  EXPECT_LT(came[2], came[1]);
}

}  // namespace
}  // namespace elastiquant
