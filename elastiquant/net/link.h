// A model of a slow access link, so that a run on one machine takes the time that it would take
// between machines. It says what a message costs on the wire, and when the link is free to
// carry it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>

#include "elastiquant/net/communicator.h"

namespace elastiquant {

// Peers compare arrival times, so the clock is the one that they share: the system clock, the
// same on one machine and within NTP's error between machines.
using LinkClock = std::chrono::system_clock;
using LinkTime = std::chrono::time_point<LinkClock, std::chrono::nanoseconds>;

// What crosses an Ethernet link is frames. Each has headers of 14 bytes for Ethernet, 20 for
// IPv4 and 32 for TCP (with timestamps), and at most 1448 bytes of data (for an MTU of 1500).
inline constexpr uint64_t kFrameHeaderBytes = 66;
inline constexpr uint64_t kSegmentBytes = 1448;
// Gloo puts a preamble before each message, which is a MessageHeader and its bytes.
inline constexpr uint64_t kGlooPreambleBytes = 48;

// Return the frames and the bytes that a message of n bytes, MessageHeader included, puts on
// the link.
constexpr uint64_t Frames(uint64_t n) {
  return (n + kGlooPreambleBytes + kSegmentBytes - 1) / kSegmentBytes;
}
// TCP acknowledges every second segment. A worker's acknowledgements go up with what it sends,
// and in an all-reduce as much comes as goes: so a message pays for acknowledgements of its own
// size in its own direction.
constexpr uint64_t WireBytes(uint64_t n) {
  return n + kGlooPreambleBytes + (Frames(n) + (Frames(n) + 1) / 2) * kFrameHeaderBytes;
}

// Returns how long a message of n bytes keeps the link busy.
std::chrono::nanoseconds WireTime(const LinkSpec& link, uint64_t n);
// Returns how long the longest frame of the message keeps it busy: a switch passes a frame on
// only when all of it has come.
std::chrono::nanoseconds FrameTime(const LinkSpec& link, uint64_t n);

// One direction of a link, which carries one thing at a time at full rate. Not thread-safe.
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
