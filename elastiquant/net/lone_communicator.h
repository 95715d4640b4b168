// The communicator of a job of one worker, which has nobody to talk to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/net/failed_transfer.h"

namespace elastiquant {

class LoneCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  std::unique_ptr<Transfer> Send(int to, uint32_t, std::span<const uint8_t>,
                                 uint16_t) override {
    return NoSuchPeer(to);
  }
  std::unique_ptr<Incoming> Receive(int from, uint32_t, size_t) override {
    return NoSuchPeer(from);
  }
  Status Barrier() override { return {}; }
  Result<std::vector<uint64_t>> AllGather(uint64_t value) override {
    return std::vector<uint64_t>{value};
  }
  Status Broadcast(int root, std::span<uint8_t>) override {
    if (root != 0) return InvalidArgument("no worker " + std::to_string(root));
    return {};
  }
  Result<uint64_t> TakeNumber() override { return taken_++; }
  Traffic traffic() const override { return {}; }
  size_t peak_buffer_bytes() const override { return 0; }
  void SetActivity(std::string) override {}
  void SetFarewell(std::string) override {}
  void Abort(const Status&) override {}

 private:
  static std::unique_ptr<Incoming> NoSuchPeer(int peer) {
    return std::make_unique<FailedTransfer>(
        InvalidArgument("a job of one worker has no peer" +
                        (peer == kAnyPeer ? std::string() : " " + std::to_string(peer))));
  }

  std::atomic<uint64_t> taken_{0};
};

}  // namespace elastiquant
