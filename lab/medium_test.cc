#include "lab/medium.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>

namespace lab {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

RateTrace Trace(std::string_view text) {
  RateTrace trace(1);
  EXPECT_EQ(RateTrace::Parse(text, &trace), "");
  return trace;
}

TEST(RateTraceTest, BitsTakeWhatTheRatesOfTheirTimeGiveThem) {
  EXPECT_EQ(RateTrace(8e6).EndOf(seconds(3), 8e6), seconds(4));
  const RateTrace steps = Trace("1 8e6\n2 0\n\n1 16e6\n");
  EXPECT_EQ(steps.EndOf(seconds(0), 4e6), milliseconds(500));
  EXPECT_EQ(steps.EndOf(seconds(0), 8e6), seconds(1));
  EXPECT_EQ(steps.EndOf(milliseconds(500), 12e6), milliseconds(3500));  // over the outage
  EXPECT_EQ(steps.EndOf(seconds(2), 16e6), seconds(4));
  EXPECT_EQ(steps.EndOf(seconds(7), 20e6), milliseconds(8500));  // into the next period
  EXPECT_EQ(steps.EndOf(seconds(4), 24e6 * 1000), seconds(4004));
}

TEST(RateTraceTest, WhatIsNoTraceIsRefused) {
  for (const char* text :
       {"", "1", "0 5", "-1 5", "1 -5", "1 0\n2 0", "1 5 9", "a b", "1 inf"}) {
    RateTrace trace(1);
    EXPECT_NE(RateTrace::Parse(text, &trace), "") << text;
  }
}

TEST(MediumTest, FramesOfAStationFollowEachOther) {
  Medium<int> link({.rate = RateTrace(8e6)}, 1);
  EXPECT_FALSE(link.next());
  EXPECT_TRUE(link.Push(0, 1, 1000, microseconds(5)));
  EXPECT_TRUE(link.Push(0, 2, 500, microseconds(6)));
  EXPECT_EQ(link.next(), microseconds(1005));
  EXPECT_EQ(link.Pop(), 1);
  EXPECT_EQ(link.next(), microseconds(1505));
  EXPECT_EQ(link.Pop(), 2);
  EXPECT_FALSE(link.next());
}

TEST(MediumTest, EachFrameOfAnEthernetHasItsOverhead) {
  Medium<int> air({.rate = RateTrace(8e6), .overhead = microseconds(100)}, 1);
  air.Push(0, 1, 60, Time(0));
  EXPECT_EQ(air.next(), microseconds(160));
  air.Pop();
  air.Push(0, 2, 3 * 1514, seconds(1));
  EXPECT_EQ(air.next(), seconds(1) + microseconds(4542 + 300));
}

TEST(MediumTest, AFullQueueLosesFrames) {
  Medium<int> link({.rate = RateTrace(8e6), .queue = milliseconds(10)}, 2);
  int taken = 0;
  while (link.Push(0, taken, 1000, Time(0))) ++taken;
  EXPECT_EQ(taken, 11);                         // one that is being sent, and ten
  EXPECT_TRUE(link.Push(1, 0, 1000, Time(0)));  // another station has a queue of its own
}

// Pushes frames so that both stations always have some, and returns how many of each are sent.
std::array<int, 2> SentOfEach(Medium<size_t>& air, int frames) {
  std::array<int, 2> sent = {0, 0};
  Time now(0);
  air.Push(0, 0, 1514, now);
  air.Push(1, 1, 1514, now);
  for (int i = 0; i < frames; ++i) {
    now = *air.next();
    if (const auto frame = air.Pop()) ++sent[*frame];
    for (const size_t station : {0, 1}) {
      while (air.Push(station, station, 1514, now)) {
      }
    }
  }
  return sent;
}

TEST(MediumTest, StationsShareTheAir) {
  Medium<size_t> air({.rate = RateTrace(8e6), .queue = milliseconds(10)}, 2);
  const auto sent = SentOfEach(air, 10000);
  EXPECT_NEAR(sent[0], 5000, 4 * 50);  // four standard deviations
  EXPECT_EQ(sent[0] + sent[1], 10000);
  // No time is lost between frames, nor are two on the air at once.
  EXPECT_NEAR(static_cast<double>(air.next()->count()), 1e9 * 10001 * 1514 / 1e6, 1e9);
}

TEST(MediumTest, CollisionsTakeAirFromAll) {
  Medium<size_t> air({.rate = RateTrace(8e6), .window = 16, .queue = milliseconds(10)}, 2);
  SentOfEach(air, 20000);
  // The first try fails by 1/16, the second by 1/32 and so on.
  const double tries = 1 + 1. / 16 * (1 + 1. / 32 * (1 + 1. / 64));
  EXPECT_NEAR(static_cast<double>(air.next()->count()) / (1e9 * 20001 * 1514 / 1e6), tries,
              .006);
}

TEST(MediumTest, OneStationAloneNeverCollides) {
  Medium<int> air({.rate = RateTrace(8e6), .window = 1}, 3);
  air.Push(1, 7, 1000, Time(0));
  EXPECT_EQ(air.next(), milliseconds(1));
  EXPECT_EQ(air.Pop(), 7);
}

TEST(MediumTest, AFrameThatAlwaysCollidesIsLost) {
  // With a window of one slot two stations always draw the same, but it doubles eight times.
  Medium<int> air({.rate = RateTrace(8e6), .window = 1, .queue = seconds(100)}, 40);
  for (size_t s = 0; s < 40; ++s) {
    for (int i = 0; i < 50; ++i) air.Push(s, i, 1000, Time(0));
  }
  int lost = 0;
  for (int i = 0; i < 1000; ++i) lost += !air.Pop();
  EXPECT_GT(lost, 0);
  EXPECT_LT(lost, 1000);
}

}  // namespace
}  // namespace lab
