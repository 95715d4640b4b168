#include "elastiquant/net/buffer_pool.h"

#include <algorithm>

namespace elastiquant {

// The smallest that will do, unless most of it would be idle.
BufferPool::Buffer BufferPool::Take(size_t size) {
  Buffer buffer;
  buffer.pool_ = this;
  buffer.size_ = size;
  {
    const std::lock_guard lock(mutex_);
    auto best = spare_.end();
    for (auto s = spare_.begin(); s != spare_.end(); ++s) {
      const bool fits = s->capacity >= size && s->capacity / 2 <= size;
      if (fits && (best == spare_.end() || s->capacity < best->capacity)) best = s;
    }
    if (best != spare_.end()) {
      buffer.data_ = std::move(best->data);
      buffer.capacity_ = best->capacity;
      spare_bytes_ -= best->capacity;
      *best = std::move(spare_.back());
      spare_.pop_back();
    }
    used_bytes_ += std::max(buffer.capacity_, size);
    peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  }
  if (buffer.data_ == nullptr) {
    buffer.data_ = std::make_unique_for_overwrite<uint8_t[]>(size);
    buffer.capacity_ = size;
  }
  return buffer;
}

// The smallest go first: the largest cost most to get again.
void BufferPool::Return(std::unique_ptr<uint8_t[]> data, size_t capacity) {
  std::vector<Spare> surplus;  // freed without the lock
  const std::lock_guard lock(mutex_);
  used_bytes_ -= capacity;
  spare_.push_back({std::move(data), capacity});
  spare_bytes_ += capacity;
  while (spare_bytes_ > kMostSpareBytes) {
    const auto least = std::ranges::min_element(spare_, {}, &Spare::capacity);
    spare_bytes_ -= least->capacity;
    surplus.push_back(std::move(*least));
    *least = std::move(spare_.back());
    spare_.pop_back();
  }
}

size_t BufferPool::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}

}  // namespace elastiquant
