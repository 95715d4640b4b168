#include "elastiquant/net/uplink.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace elastiquant {

Uplink::Uplink(Transport* transport, const std::optional<LinkSpec>& link)
    : transport_(transport), link_(link), thread_([this] { link_ ? Pace() : Meter(); }) {}

Uplink::~Uplink() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Uplink::Send(std::shared_ptr<OutgoingMessage> message) {
  const LinkTime now = LinkClock::now();
  if (!link_) message->Post(*transport_, now);
  std::lock_guard lock(mutex_);
  LinkTime time = now;
  if (link_) {
    const auto duration = WireTime(*link_, message->wire_size());
    busy_ += duration;
    free_ = std::max(free_, now) + duration;
    time = free_ + std::chrono::nanoseconds(std::llround(link_->delay_seconds * 1e9));
  }
  queue_.push_back({std::move(message), time});
  changed_.notify_all();
}

// Hands each message to the transport when its last byte would arrive.
void Uplink::Pace() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    const LinkTime arrival = queue_.front().time;
    if (changed_.wait_until(lock, arrival, [&] { return stop_; })) return;
    const std::shared_ptr<OutgoingMessage> message = std::move(queue_.front().message);
    queue_.pop_front();
    lock.unlock();
    message->Post(*transport_, arrival);
    lock.lock();
  }
}

// Merges the intervals from handing over to completion.
void Uplink::Meter() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_ && queue_.empty()) return;
    const Item item = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    (void)item.message->Complete();  // whoever waits for the message gets its error
    const LinkTime end = LinkClock::now();
    lock.lock();
    busy_ += std::max(end - std::max(item.time, free_), std::chrono::nanoseconds(0));
    free_ = end;
  }
}

double Uplink::busy_seconds() const {
  std::lock_guard lock(mutex_);
  return std::chrono::duration<double>(busy_).count();
}

}  // namespace elastiquant
