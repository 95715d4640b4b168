// The sending side of a communicator. It hands messages to the transport, at once or, with an
// emulated link, when the link would deliver them, and measures how long the link was busy with
// them.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "elastiquant/net/link.h"
#include "elastiquant/net/message.h"

namespace elastiquant {

class Uplink {
 public:
  Uplink(Transport* transport, const std::optional<LinkSpec>& link);
  ~Uplink();  // all messages must be complete or aborted
  Uplink(const Uplink&) = delete;
  Uplink& operator=(const Uplink&) = delete;

  // Takes a message over, which is posted now or later. Returns at once.
  void Send(std::shared_ptr<OutgoingMessage> message);
  double busy_seconds() const;

 private:
  struct Item {
    std::shared_ptr<OutgoingMessage> message;
    LinkTime time;  // when it arrives, on an emulated link; else when it was handed over
  };

  void Pace();
  void Meter();

  Transport* const transport_;
  const std::optional<LinkSpec> link_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool stop_ = false;
  LinkTime free_{};  // when the link has carried all that it was given
  std::chrono::nanoseconds busy_{0};
  std::thread thread_;
};

}  // namespace elastiquant
