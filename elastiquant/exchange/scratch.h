// Memory of one thread, which is used again and again.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace elastiquant {

// An array that grows as needed. Its pages take no memory before they are written to.
template <typename T>
class Scratch {
 public:
  // Returns `size` values, which are unspecified. The last call's values become invalid.
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
