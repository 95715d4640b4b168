#include "elastiquant/net/uplink.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace elastiquant {

Uplink::Uplink(Transport* transport, const std::optional<LinkSpec>& link,
               const std::map<int, LinkSpec>& wires)
    : transport_(transport) {
  if (link) access_ = Lane{*link};
  for (const auto& [to, wire] : wires) wires_[to] = Lane{wire};
  const bool is_emulated = access_ || !wires_.empty();
  thread_ = std::thread([this, is_emulated] { is_emulated ? Pace() : Meter(); });
}

Uplink::~Uplink() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// The emulated link to a worker, if there is one.
Uplink::Lane* Uplink::LaneTo(int to) {
  const auto wire = wires_.find(to);
  if (wire != wires_.end()) return &wire->second;
  return access_ ? &*access_ : nullptr;
}

void Uplink::Send(int to, std::shared_ptr<OutgoingMessage> message) {
  const LinkTime now = LinkClock::now();
  const MeterClock::time_point since = MeterClock::now();
  Lane* const lane = LaneTo(to);
  if (lane == nullptr) message->Post(*transport_, now);
  std::lock_guard lock(mutex_);
  if (lane != nullptr) {
    const auto duration = WireTime(lane->link, message->wire_size());
    busy_ += duration;
    lane->free = std::max(lane->free, now) + duration;
    const std::chrono::nanoseconds delay(std::llround(lane->link.delay_seconds * 1e9));
    queue_.emplace(lane->free + delay, std::move(message));
  } else if (!access_ && wires_.empty()) {  // nothing is measured beside emulated links
    handed_over_.push_back({since, std::move(message)});
  }
  changed_.notify_all();
}

// Hands each message to the transport when its last byte would arrive.
void Uplink::Pace() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const LinkTime arrival = queue_.begin()->first;
    // One that arrives earlier may come to the queue meanwhile, by another wire.
    const auto is_overtaken = [&] { return stop_ || queue_.begin()->first < arrival; };
    if (changed_.wait_until(lock, arrival, is_overtaken)) continue;
    const std::shared_ptr<OutgoingMessage> message = std::move(queue_.begin()->second);
    queue_.erase(queue_.begin());
    lock.unlock();
    message->Post(*transport_, arrival);
    lock.lock();
  }
}

// Merges the intervals from handing over to completion.
void Uplink::Meter() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !handed_over_.empty(); });
    if (handed_over_.empty()) return;
    const auto [since, message] = std::move(handed_over_.front());
    handed_over_.pop_front();
    lock.unlock();
    (void)message->Complete();  // whoever waits for the message gets its error
    const MeterClock::time_point end = MeterClock::now();
    lock.lock();
    busy_ += std::max(end - std::max(since, free_), std::chrono::nanoseconds(0));
    free_ = end;
  }
}

double Uplink::busy_seconds() const {
  std::lock_guard lock(mutex_);
  return std::chrono::duration<double>(busy_).count();
}

}  // namespace elastiquant
