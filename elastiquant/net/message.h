// One message under way: a header, which says how long the message is, and its bytes behind it.
// The header is there because c10d does not tell a receiver how much came, and to exchange
// lengths first would cost a round trip. Both go as one message of the transport: two would
// cost packets and system calls, and copying a frame costs less. docs/frame-format.md, section
// 16, specifies the header.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>

#include "elastiquant/base/status.h"
#include "elastiquant/net/buffer_pool.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/net/link.h"
#include "elastiquant/net/transport.h"

namespace elastiquant {

struct MessageHeader {
  uint64_t size = 0;       // of the bytes that follow, below 2^48
  uint16_t metric = 0;     // see Communicator::Send
  int64_t arrival_ns = 0;  // when the last byte would be there, on the sender's LinkClock
};
void WriteHeader(const MessageHeader& header, std::span<uint8_t, kMessageHeaderBytes> out);
MessageHeader ReadHeader(std::span<const uint8_t, kMessageHeaderBytes> bytes);

// A message that goes out or comes in. Both kinds are bound to a peer and a tag. Abort makes
// the call that waits for the message return, and may be called by any thread at any time.
class Message {
 public:
  virtual ~Message() = default;
  virtual void Abort() = 0;
};

class OutgoingMessage final : public Message {
 public:
  // Copies the bytes into a buffer of the pool.
  OutgoingMessage(int to, uint32_t tag, std::span<const uint8_t> bytes, uint16_t metric,
                  BufferPool& pool);

  size_t wire_size() const { return size_; }
  // Hands the message to the transport. `arrival` is written into its header.
  void Post(Transport& transport, LinkTime arrival);
  // Returns when the message has been posted and sent. Any number of threads may call it.
  Status Complete();
  void Abort() override;

 private:
  enum class State { kNew, kPosted, kCompleting, kComplete };

  const int to_;
  const uint32_t tag_;
  const size_t size_;
  const uint16_t metric_;
  BufferPool::Buffer wire_;  // header and bytes
  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kNew;
  bool aborted_ = false;
  Status status_;
  std::unique_ptr<Posting> work_;
};

class IncomingMessage final : public Message {
 public:
  // Posts the receive of a message of at most `room` bytes. `from` may be kAnyPeer.
  IncomingMessage(Transport& transport, int from, uint32_t tag, size_t room, BufferPool& pool);

  // Returns the header when all of the message has come, or nothing at the deadline. Fails with
  // kCorruptData if the header claims more bytes than there is room for. Must not be called
  // again once it has returned a header or an error.
  Result<std::optional<MessageHeader>> CompleteUntil(Deadline deadline);
  // Return what has come, and from whom. Valid after CompleteUntil() has returned a header.
  std::span<const uint8_t> bytes() const;
  int from() const { return work_->peer(); }
  void Abort() override;

 private:
  const BufferPool::Buffer wire_;  // room for the header and the bytes
  size_t size_ = 0;                // bytes that have come
  Status status_;                  // the posting's
  std::unique_ptr<Posting> work_;
};

// The messages under way, so that all can be aborted when a worker is lost.
class Flights {
 public:
  // Adds a message. After AbortAll it aborts the message instead, and returns false.
  bool Add(Message* message);
  void Remove(Message* message);
  void AbortAll();

 private:
  std::mutex mutex_;
  bool aborted_ = false;
  std::set<Message*> messages_;
};

}  // namespace elastiquant
