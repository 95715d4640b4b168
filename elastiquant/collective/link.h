// A model of a slow access link, so that a run on one machine takes the time it would take
// between machines: what a message costs on the wire, and when the link is free to carry it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>

#include "elastiquant/collective/communicator.h"

namespace elastiquant {

// Peers compare arrival times, so the clock is the one that they share: the system clock, the
// same on one machine and within NTP's error between machines.
using LinkClock = std::chrono::system_clock;
using LinkTime = std::chrono::time_point<LinkClock, std::chrono::nanoseconds>;

// Bytes that a TCP message of n bytes puts on an Ethernet: segments of 1448 bytes (MTU 1500
// with TCP timestamps), each with 14 + 20 + 32 bytes of Ethernet, IPv4 and TCP headers.
constexpr uint64_t WireBytes(uint64_t n) { return n + (n + 1447) / 1448 * 66; }

// How long a message of n bytes keeps the link busy.
std::chrono::nanoseconds WireTime(const LinkSpec& link, uint64_t n);

// One direction of a link: it carries one thing at a time at full rate. Not thread-safe.
class LinkTimeline {
 public:
  // Books `duration` of the link's idle time from `start` on, in pieces if need be, and returns
  // when the last piece ends. The order of calls matters little, so a receiver may account for
  // messages in the order that it waits for them rather than the one in which they came.
  LinkTime Reserve(LinkTime start, std::chrono::nanoseconds duration);

 private:
  void Book(LinkTime begin, LinkTime end);

  std::map<LinkTime, LinkTime> busy_;  // begin to end; neither overlapping nor touching
};

}  // namespace elastiquant
