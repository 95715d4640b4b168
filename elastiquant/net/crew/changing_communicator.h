// One communicator after another behind one that stays, so that whoever has a pointer to it
// need not know that the group of workers has changed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"

namespace elastiquant {

// While there is none behind it, it is of rank 0 in a world of one, and whatever is begun fails
// with Unavailable.
class ChangingCommunicator final : public Communicator {
 public:
  // Destroys the one before, if there is one, and takes this one, which may be null. Nothing
  // may be under way, and no other thread may use the communicator.
  void Replace(std::unique_ptr<Communicator> next);

  int rank() const override { return current_ ? current_->rank() : 0; }
  int world_size() const override { return current_ ? current_->world_size() : 1; }
  WorkerNames names() const override { return current_ ? current_->names() : WorkerNames(); }
  std::unique_ptr<Transfer> Send(int to, uint32_t tag, std::span<const uint8_t> bytes,
                                 uint16_t metric) override;
  std::unique_ptr<Incoming> Receive(int from, uint32_t tag, size_t room) override;
  Status Barrier() override;
  Result<std::vector<uint64_t>> AllGather(uint64_t value) override;
  Status Broadcast(int root, std::span<uint8_t> bytes) override;
  // Each group counts anew.
  Result<uint64_t> TakeNumber() override;
  // Of all communicators so far.
  Traffic traffic() const override;
  size_t peak_buffer_bytes() const override;
  void SetActivity(std::string activity) override;
  void SetFarewell(std::string why) override;
  std::optional<int> lost_rank() const override;
  void Abort(const Status& why) override;

 private:
  std::unique_ptr<Communicator> current_;
  std::string farewell_;
  Traffic before_;
  size_t peak_before_ = 0;
};

}  // namespace elastiquant
