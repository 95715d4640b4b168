#include "elastiquant/collective/message.h"

#include <string>
#include <utility>

namespace elastiquant {
namespace {

// Above the callers' tags.
constexpr uint32_t kHeaderTag = 1u << 26;

std::span<uint8_t> AsBytes(MessageHeader& header) {
  return {reinterpret_cast<uint8_t*>(&header), sizeof(header)};
}

}  // namespace

void OutgoingMessage::Post(GlooGroup& group, LinkTime arrival) {
  std::lock_guard lock(mutex_);
  if (aborted_) return;
  header_ = {bytes_.size(), arrival.time_since_epoch().count()};
  auto header = group.Send(to_, tag_ | kHeaderTag, AsBytes(header_));
  if (header.ok()) {
    header_work_ = std::move(*header);
    auto bytes = group.Send(to_, tag_, bytes_);
    if (bytes.ok()) bytes_work_ = std::move(*bytes);
    status_ = bytes.status();
  } else {
    status_ = header.status();
  }
  state_ = State::kPosted;
  changed_.notify_all();
}

Status OutgoingMessage::Complete() {
  std::unique_lock lock(mutex_);
  changed_.wait(
      lock, [&] { return aborted_ || state_ == State::kPosted || state_ == State::kComplete; });
  if (state_ == State::kNew || state_ == State::kCompleting) return Unavailable("aborted");
  if (state_ == State::kComplete) return status_;
  state_ = State::kCompleting;
  Status status = status_;
  lock.unlock();
  if (status.ok()) status = header_work_->Wait();
  if (status.ok()) status = bytes_work_->Wait();
  lock.lock();
  status_ = status;
  state_ = State::kComplete;
  changed_.notify_all();
  return status_;
}

void OutgoingMessage::Abort() {
  std::lock_guard lock(mutex_);
  aborted_ = true;
  if (header_work_) header_work_->Abort();
  if (bytes_work_) bytes_work_->Abort();
  changed_.notify_all();
}

IncomingMessage::IncomingMessage(GlooGroup& group, int from, uint32_t tag,
                                 std::span<uint8_t> bytes)
    : bytes_(bytes) {
  auto header = group.Receive(from, tag | kHeaderTag, AsBytes(header_));
  status_ = header.status();
  if (!header.ok()) return;
  header_work_ = std::move(*header);
  auto payload = group.Receive(from, tag, bytes_);
  status_ = payload.status();
  if (payload.ok()) bytes_work_ = std::move(*payload);
}

Result<MessageHeader> IncomingMessage::Complete() {
  EQ_RETURN_IF_ERROR(status_);
  EQ_RETURN_IF_ERROR(header_work_->Wait());
  EQ_RETURN_IF_ERROR(bytes_work_->Wait());
  if (header_.size > bytes_.size()) {
    return CorruptData("a message header says " + std::to_string(header_.size) +
                       " bytes, but at most " + std::to_string(bytes_.size()) + " can come");
  }
  return header_;
}

void IncomingMessage::Abort() {
  if (header_work_) header_work_->Abort();
  if (bytes_work_) bytes_work_->Abort();
}

bool Flights::Add(Message* message) {
  std::lock_guard lock(mutex_);
  if (aborted_) {
    message->Abort();
    return false;
  }
  messages_.insert(message);
  return true;
}

void Flights::Remove(Message* message) {
  std::lock_guard lock(mutex_);
  messages_.erase(message);
}

void Flights::AbortAll() {
  std::lock_guard lock(mutex_);
  aborted_ = true;
  for (Message* message : messages_) message->Abort();
}

}  // namespace elastiquant
