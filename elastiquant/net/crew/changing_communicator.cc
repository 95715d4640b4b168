#include "elastiquant/net/crew/changing_communicator.h"

#include <algorithm>
#include <utility>

#include "elastiquant/net/failed_transfer.h"

namespace elastiquant {
namespace {

Status NoGroup() { return Unavailable("this worker is in no group of workers now"); }

}  // namespace

void ChangingCommunicator::Replace(std::unique_ptr<Communicator> next) {
  before_ = traffic();
  peak_before_ = peak_buffer_bytes();
  current_ = std::move(next);
  if (current_ && !farewell_.empty()) current_->SetFarewell(farewell_);
}

std::unique_ptr<Transfer> ChangingCommunicator::Send(int to, uint32_t tag,
                                                     std::span<const uint8_t> bytes,
                                                     uint16_t metric) {
  if (!current_) return std::make_unique<FailedTransfer>(NoGroup());
  return current_->Send(to, tag, bytes, metric);
}

std::unique_ptr<Incoming> ChangingCommunicator::Receive(int from, uint32_t tag, size_t room) {
  if (!current_) return std::make_unique<FailedTransfer>(NoGroup());
  return current_->Receive(from, tag, room);
}

Status ChangingCommunicator::Barrier() { return current_ ? current_->Barrier() : NoGroup(); }

Result<std::vector<uint64_t>> ChangingCommunicator::AllGather(uint64_t value) {
  if (!current_) return NoGroup();
  return current_->AllGather(value);
}

Status ChangingCommunicator::Broadcast(int root, std::span<uint8_t> bytes) {
  return current_ ? current_->Broadcast(root, bytes) : NoGroup();
}

Result<uint64_t> ChangingCommunicator::TakeNumber() {
  if (!current_) return NoGroup();
  return current_->TakeNumber();
}

Traffic ChangingCommunicator::traffic() const {
  if (!current_) return before_;
  const Traffic now = current_->traffic();
  return {before_.bytes_up + now.bytes_up, before_.bytes_down + now.bytes_down,
          before_.transmit_seconds + now.transmit_seconds};
}

size_t ChangingCommunicator::peak_buffer_bytes() const {
  return std::max(peak_before_, current_ ? current_->peak_buffer_bytes() : 0);
}

void ChangingCommunicator::SetActivity(std::string activity) {
  if (current_) current_->SetActivity(std::move(activity));
}

void ChangingCommunicator::SetFarewell(std::string why) {
  farewell_ = why;
  if (current_) current_->SetFarewell(std::move(why));
}

std::optional<int> ChangingCommunicator::lost_rank() const {
  return current_ ? current_->lost_rank() : std::nullopt;
}

void ChangingCommunicator::Abort(const Status& why) {
  if (current_) current_->Abort(why);
}

}  // namespace elastiquant
