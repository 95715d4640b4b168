// The messages that one stage has sent and that are still under way. Their number and bytes are
// limited, so that a fast stage before a slow link does not collect a whole model's frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "elastiquant/net/communicator.h"

namespace elastiquant {

// Each stage that sends has one. It may be used by one thread at a time.
class SendQueue {
 public:
  static constexpr size_t kMostBytes = size_t{8} << 20;
  static constexpr size_t kMostMessages = 1024;

  explicit SendQueue(Communicator* comm) : comm_(comm) {}
  // Waits for all messages, even if some of them fail.
  ~SendQueue() {
    for (UnderWay& message : under_way_) (void)message.transfer->Wait();
  }
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  // Sends a message, and before that waits for the oldest ones until there is room. Returns the
  // error of one of those, if one has failed.
  Status Send(int to, uint32_t tag, std::span<const uint8_t> bytes, uint16_t metric) {
    while (!under_way_.empty() &&
           (bytes_ + bytes.size() > kMostBytes || under_way_.size() >= kMostMessages)) {
      const UnderWay oldest = std::move(under_way_.front());
      under_way_.pop_front();
      bytes_ -= oldest.size;
      EQ_RETURN_IF_ERROR(oldest.transfer->Wait().status());
    }
    under_way_.push_back({comm_->Send(to, tag, bytes, metric), bytes.size()});
    bytes_ += bytes.size();
    return {};
  }

 private:
  struct UnderWay {
    std::unique_ptr<Transfer> transfer;
    size_t size;
  };

  Communicator* const comm_;
  std::deque<UnderWay> under_way_;
  size_t bytes_ = 0;  // of all that are under way
};

}  // namespace elastiquant
