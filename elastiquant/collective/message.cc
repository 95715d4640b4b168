#include "elastiquant/collective/message.h"

#include <cstring>
#include <string>
#include <utility>

namespace elastiquant {

void OutgoingMessage::Post(GlooGroup& group, LinkTime arrival) {
  std::lock_guard lock(mutex_);
  if (aborted_) return;
  const MessageHeader header{bytes_.size(), arrival.time_since_epoch().count()};
  wire_ = std::make_unique_for_overwrite<uint8_t[]>(wire_size());
  std::memcpy(wire_.get(), &header, sizeof(header));
  std::memcpy(wire_.get() + sizeof(header), bytes_.data(), bytes_.size());
  auto work = group.Send(to_, tag_, {wire_.get(), wire_size()});
  if (work.ok()) work_ = std::move(*work);
  status_ = work.status();
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
  if (status.ok()) status = work_->Wait();
  lock.lock();
  status_ = status;
  if (status.ok()) wire_.reset();  // long before the message goes
  state_ = State::kComplete;
  changed_.notify_all();
  return status_;
}

void OutgoingMessage::Abort() {
  std::lock_guard lock(mutex_);
  aborted_ = true;
  if (work_) work_->Abort();
  changed_.notify_all();
}

IncomingMessage::IncomingMessage(GlooGroup& group, int from, uint32_t tag,
                                 std::span<uint8_t> bytes)
    : bytes_(bytes),
      wire_(std::make_unique_for_overwrite<uint8_t[]>(kMessageHeaderBytes + bytes.size())) {
  auto work = group.Receive(from, tag, {wire_.get(), kMessageHeaderBytes + bytes.size()});
  status_ = work.status();
  if (work.ok()) work_ = std::move(*work);
}

Result<MessageHeader> IncomingMessage::Complete() {
  EQ_RETURN_IF_ERROR(status_);
  EQ_RETURN_IF_ERROR(work_->Wait());
  MessageHeader header;
  std::memcpy(&header, wire_.get(), sizeof(header));
  if (header.size > bytes_.size()) {
    return CorruptData("a message header says " + std::to_string(header.size) +
                       " bytes, but at most " + std::to_string(bytes_.size()) + " can come");
  }
  std::memcpy(bytes_.data(), wire_.get() + sizeof(header), header.size);
  return header;
}

void IncomingMessage::Abort() {
  if (work_) work_->Abort();
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
