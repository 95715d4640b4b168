// A message that could not even begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

class FailedTransfer final : public Incoming {
 public:
  explicit FailedTransfer(Status status) : status_(std::move(status)) {}
  Result<size_t> Wait() override { return status_; }
  Result<bool> WaitUntil(Deadline) override { return status_; }
  std::span<const uint8_t> bytes() const override { return {}; }
  int from() const override { return kAnyPeer; }
  uint16_t metric() const override { return 0; }

 private:
  Status status_;
};

}  // namespace elastiquant
