// Memory of one thread, used again and again.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace elastiquant {

// Its pages take no memory before they are written to.
template <typename T>
class Scratch {
 public:
  // `size` values, unspecified.
  std::span<T> AtLeast(size_t size) {
    if (size_ < size) {
      data_ = std::make_unique_for_overwrite<T[]>(size);
      size_ = size;
    }
    return {data_.get(), size};
  }

 private:
  std::unique_ptr<T[]> data_;
  size_t size_ = 0;
};

}  // namespace elastiquant
