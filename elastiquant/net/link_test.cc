#include "elastiquant/net/link.h"

#include <gtest/gtest.h>

#include <vector>

namespace elastiquant {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr LinkTime At(int ms) { return LinkTime(milliseconds(1'000'000 + ms)); }

TEST(WireBytes, CountsPreambleHeadersAndAcknowledgements) {
  // A frame, and an acknowledgement of it.
  EXPECT_EQ(Frames(17), 1u);
  EXPECT_EQ(WireBytes(17), 17u + 48 + 2 * 66);
  // As much as fits a frame beside Gloo's preamble, and a byte more.
  EXPECT_EQ(Frames(1400), 1u);
  EXPECT_EQ(Frames(1401), 2u);
  EXPECT_EQ(WireBytes(1401), 1401u + 48 + 3 * 66);
  // Of a long message 1448 of every 1514 + 66 / 2 bytes are its own.
  const auto n = uint64_t{1448} * 100000;
  EXPECT_NEAR(static_cast<double>(WireBytes(n)) / static_cast<double>(n), 1547.0 / 1448, 1e-5);
}

TEST(WireTime, IsThatOfTheBytesAtTheRate) {
  EXPECT_EQ(WireTime({8e6, 0}, 17), nanoseconds(197'000));
  EXPECT_EQ(WireTime({16e6, 0.01}, 17), nanoseconds(98'500));
}

TEST(FrameTime, IsThatOfOneFrame) {
  EXPECT_EQ(FrameTime({8e6, 0}, 100), nanoseconds(214'000));
  EXPECT_EQ(FrameTime({8e6, 0}, 100'000), nanoseconds(1'514'000));
}

TEST(LinkTimeline, ASingleFlowPaysOnce) {
  // Messages that come back to back, each having taken 10 ms, are there when they come.
  LinkTimeline link;
  for (int t = 10; t <= 100; t += 10) {
    EXPECT_EQ(link.Reserve(At(t - 10), milliseconds(10)), At(t));
  }
}

TEST(LinkTimeline, FlowsThatComeTogetherShareTheLink) {
  LinkTimeline link;
  EXPECT_EQ(link.Reserve(At(0), milliseconds(10)), At(10));
  EXPECT_EQ(link.Reserve(At(0), milliseconds(10)), At(20));
  EXPECT_EQ(link.Reserve(At(0), milliseconds(10)), At(30));
  EXPECT_EQ(link.Reserve(At(50), milliseconds(10)), At(60));
}

TEST(LinkTimeline, WaitingInAnotherOrderFindsTheIdleTime) {
  LinkTimeline link;
  EXPECT_EQ(link.Reserve(At(50), milliseconds(10)), At(60));
  EXPECT_EQ(link.Reserve(At(0), milliseconds(10)), At(10));
  // 10 to 50 is idle, then 60 on: 45 ms from 20 on are 30 before the gap's end and 15 after.
  EXPECT_EQ(link.Reserve(At(20), milliseconds(45)), At(75));
  EXPECT_EQ(link.Reserve(At(0), milliseconds(10)), At(20));
  EXPECT_EQ(link.Reserve(At(0), milliseconds(1)), At(76));
}

TEST(LinkTimeline, KeepsUpOverManyMessages) {
  LinkTimeline link;
  LinkTime end{};
  for (int i = 0; i < 100000; ++i) end = link.Reserve(At(i), milliseconds(1));
  EXPECT_EQ(end, At(100000));
}

}  // namespace
}  // namespace elastiquant
