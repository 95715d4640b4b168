#include "elastiquant/net/link.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace elastiquant {
namespace {

using std::chrono::nanoseconds;

// Intervals that ended so long ago take no part any more: no message is waited for that late.
constexpr std::chrono::seconds kMemory{60};

nanoseconds TimeOfBytes(const LinkSpec& link, uint64_t bytes) {
  return nanoseconds(std::llround(static_cast<double>(bytes) * 8 / link.bits_per_second * 1e9));
}

}  // namespace

nanoseconds WireTime(const LinkSpec& link, uint64_t n) {
  return TimeOfBytes(link, WireBytes(n));
}

nanoseconds FrameTime(const LinkSpec& link, uint64_t n) {
  return TimeOfBytes(link, std::min(n + kGlooPreambleBytes, kSegmentBytes) + kFrameHeaderBytes);
}

LinkTime LinkTimeline::Reserve(LinkTime start, nanoseconds duration) {
  while (!busy_.empty() && busy_.begin()->second < start - kMemory) busy_.erase(busy_.begin());

  LinkTime at = start;
  auto next = busy_.upper_bound(at);
  if (next != busy_.begin()) at = std::max(at, std::prev(next)->second);
  while (duration > nanoseconds::zero()) {
    next = busy_.upper_bound(at);
    const LinkTime idle_end = next == busy_.end() ? LinkTime::max() : next->first;
    const LinkTime end = idle_end - at > duration ? at + duration : idle_end;
    duration -= end - at;
    Book(at, end);
    at = end;
    if (duration > nanoseconds::zero()) at = std::prev(busy_.upper_bound(at))->second;
  }
  return at;
}

void LinkTimeline::Book(LinkTime begin, LinkTime end) {
  auto next = busy_.lower_bound(begin);
  if (next != busy_.end() && next->first == end) {
    end = next->second;
    next = busy_.erase(next);
  }
  if (next != busy_.begin() && std::prev(next)->second == begin) {
    std::prev(next)->second = end;
  } else {
    busy_.emplace(begin, end);
  }
}

}  // namespace elastiquant
