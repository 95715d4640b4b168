// Memory for messages, which is used again and again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace elastiquant {

// Lends buffers of bytes to the messages of a communicator, and keeps some of those that come
// back for the next messages. It is thread-safe. The contents of a buffer are unspecified.
// Pages that nobody has written to yet take no memory: those at the end of a buffer with room
// for the longest possible frame often are such pages.
class BufferPool {
 public:
  // Of the buffers that are not in use, no more than this is kept for the next Take.
  static constexpr size_t kMostSpareBytes = size_t{16} << 20;

  // A buffer that goes back to its pool when it is destroyed. The pool must outlive it.
  class Buffer {
   public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept { Swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
      Buffer(std::move(other)).Swap(*this);
      return *this;
    }
    ~Buffer() {
      if (pool_ != nullptr) pool_->Return(std::move(data_), capacity_);
    }

    std::span<uint8_t> span() const { return {data_.get(), size_}; }

   private:
    friend class BufferPool;
    void Swap(Buffer& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(data_, other.data_);
      std::swap(size_, other.size_);
      std::swap(capacity_, other.capacity_);
    }

    BufferPool* pool_ = nullptr;
    std::unique_ptr<uint8_t[]> data_;
    size_t size_ = 0;      // as asked for
    size_t capacity_ = 0;  // of data_
  };

  // Returns a buffer of `size` bytes.
  Buffer Take(size_t size);

  // Returns the most bytes that have been in use at once.
  size_t peak_bytes() const;

 private:
  struct Spare {
    std::unique_ptr<uint8_t[]> data;
    size_t capacity;
  };

  void Return(std::unique_ptr<uint8_t[]> data, size_t capacity);

  mutable std::mutex mutex_;
  std::vector<Spare> spare_;
  size_t spare_bytes_ = 0;
  size_t used_bytes_ = 0;
  size_t peak_bytes_ = 0;
};

}  // namespace elastiquant
