// Sends one message to each of some workers, and takes one from each of some others.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

class MessageRound {
 public:
  using Messages = std::vector<std::unique_ptr<Incoming>>;

  MessageRound(Communicator* comm, uint32_t tag) : comm_(comm), tag_(tag) {}

  void Receive(int from, size_t most_bytes) {
    coming_.push_back(comm_->Receive(from, tag_, most_bytes));
  }
  // The message must stay until Finish returns.
  void Send(int to, std::span<const uint8_t> message) {
    sent_.push_back(comm_->Send(to, tag_, message));
  }

  // Returns the messages once all have come and left, so that one of them may be refused
  // without leaving others behind. Fails as Transfer::Wait does.
  Result<Messages> Finish() {
    for (const auto& transfer : coming_) EQ_RETURN_IF_ERROR(transfer->Wait().status());
    for (const auto& transfer : sent_) EQ_RETURN_IF_ERROR(transfer->Wait().status());
    return std::move(coming_);
  }

 private:
  Communicator* const comm_;
  const uint32_t tag_;
  std::vector<std::unique_ptr<Transfer>> sent_;
  Messages coming_;
};

}  // namespace elastiquant
