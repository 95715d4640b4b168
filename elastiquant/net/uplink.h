// The sending side of a communicator. It hands messages to the transport, at once or, with an
// emulated link, when the link would deliver them, and measures how long the link was busy with
// them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "elastiquant/net/link.h"
#include "elastiquant/net/message.h"

namespace elastiquant {

class Uplink {
 public:
  // `wires`, by receiver, are emulated links of their own.
  Uplink(Transport* transport, const std::optional<LinkSpec>& link,
         const std::map<int, LinkSpec>& wires = {});
  ~Uplink();  // all messages must be complete or aborted
  Uplink(const Uplink&) = delete;
  Uplink& operator=(const Uplink&) = delete;

  // Takes a message to worker `to` over, which is posted now or later. Returns at once.
  void Send(int to, std::shared_ptr<OutgoingMessage> message);
  double busy_seconds() const;

 private:
  // An emulated link that messages queue for.
  struct Lane {
    LinkSpec link;
    LinkTime free{};  // when it has carried all that it was given
  };

  // The system's clock may be set while a message is under way.
  using MeterClock = std::chrono::steady_clock;
  struct HandedOver {
    MeterClock::time_point since;
    std::shared_ptr<OutgoingMessage> message;
  };

  Lane* LaneTo(int to);
  void Pace();
  void Meter();

  Transport* const transport_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Lane> access_;
  std::map<int, Lane> wires_;
  // On emulated links, by when they arrive. Messages of one lane keep their order.
  std::multimap<LinkTime, std::shared_ptr<OutgoingMessage>> queue_;
  // Without an emulated link: what the transport may be busy with, and until when it was busy.
  std::deque<HandedOver> handed_over_;
  MeterClock::time_point free_{};
  bool stop_ = false;
  std::chrono::nanoseconds busy_{0};
  std::thread thread_;
};

}  // namespace elastiquant
