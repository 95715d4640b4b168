// The sending side of a communicator. It hands messages to the transport, at once or, with an
// emulated link, when the link would deliver them, and measures how long the link was busy with
// them.
#pragma once

#include <condition_variable>
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

  Lane* LaneTo(int to);
  void Pace();
  void Meter();

  Transport* const transport_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Lane> access_;
  std::map<int, Lane> wires_;
  // By when they arrive, on an emulated link; else by when they were handed over. Messages of
  // one lane keep their order.
  std::multimap<LinkTime, std::shared_ptr<OutgoingMessage>> queue_;
  bool stop_ = false;
  LinkTime free_{};  // without an emulated link: until when the transport was busy
  std::chrono::nanoseconds busy_{0};
  std::thread thread_;
};

}  // namespace elastiquant
