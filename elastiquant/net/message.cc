#include "elastiquant/net/message.h"

#include <algorithm>
#include <string>
#include <utility>

#include "elastiquant/base/bytes.h"

namespace elastiquant {
namespace {

constexpr int kSizeBits = 48;  // of the header's first eight bytes; the metric has the others

}  // namespace

void WriteHeader(const MessageHeader& header, std::span<uint8_t, kMessageHeaderBytes> out) {
  ByteWriter writer(out);
  writer.Write(header.size | uint64_t{header.metric} << kSizeBits);
  writer.Write(header.arrival_ns);
}

MessageHeader ReadHeader(std::span<const uint8_t, kMessageHeaderBytes> bytes) {
  ByteReader reader(bytes);
  MessageHeader header;
  reader.Read(&header.size);
  reader.Read(&header.arrival_ns);
  header.metric = static_cast<uint16_t>(header.size >> kSizeBits);
  header.size &= (uint64_t{1} << kSizeBits) - 1;
  return header;
}

OutgoingMessage::OutgoingMessage(int to, uint32_t tag, std::span<const uint8_t> bytes,
                                 uint16_t metric, BufferPool& pool)
    : to_(to),
      tag_(tag),
      size_(kMessageHeaderBytes + bytes.size()),
      metric_(metric),
      wire_(pool.Take(size_)) {
  std::ranges::copy(bytes, wire_.span().subspan(kMessageHeaderBytes).begin());
}

void OutgoingMessage::Post(Transport& transport, LinkTime arrival) {
  std::lock_guard lock(mutex_);
  if (aborted_) return;
  const MessageHeader header{.size = size_ - kMessageHeaderBytes,
                             .metric = metric_,
                             .arrival_ns = arrival.time_since_epoch().count()};
  WriteHeader(header, wire_.span().first<kMessageHeaderBytes>());
  auto work = transport.Send(to_, tag_, wire_.span());
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
  if (status.ok()) status = work_->WaitUntil(kNoDeadline).status();
  lock.lock();
  status_ = status;
  if (status.ok()) wire_ = {};  // long before the message goes
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

IncomingMessage::IncomingMessage(Transport& transport, int from, uint32_t tag, size_t room,
                                 BufferPool& pool)
    : wire_(pool.Take(kMessageHeaderBytes + room)) {
  auto work = transport.Receive(from, tag, wire_.span());
  status_ = work.status();
  if (work.ok()) work_ = std::move(*work);
}

Result<std::optional<MessageHeader>> IncomingMessage::CompleteUntil(Deadline deadline) {
  EQ_RETURN_IF_ERROR(status_);
  EQ_ASSIGN_OR_RETURN(const bool has_come, work_->WaitUntil(deadline));
  if (!has_come) return std::optional<MessageHeader>();
  const size_t room = wire_.span().size() - kMessageHeaderBytes;
  const MessageHeader header = ReadHeader(wire_.span().first<kMessageHeaderBytes>());
  if (header.size > room) {
    return CorruptData("a message header says " + std::to_string(header.size) +
                       " bytes, but at most " + std::to_string(room) + " can come");
  }
  size_ = header.size;
  return std::optional(header);
}

std::span<const uint8_t> IncomingMessage::bytes() const {
  return wire_.span().subspan(kMessageHeaderBytes, size_);
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
