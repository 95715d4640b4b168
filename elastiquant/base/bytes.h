// Reads and writes little-endian bytes, and checks every access.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace elastiquant {

static_assert(std::endian::native == std::endian::little,
              "frames are little endian; a big-endian port needs byte swaps here");

// Returns a copy of the bytes of `values`, as sections of a checkpoint hold them.
template <typename T>
std::vector<uint8_t> BytesOf(std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  return {bytes, bytes + values.size_bytes()};
}

// Reads a byte span front to back. A read past the end fails and leaves the reader failed.
class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> data) : data_(data) {}

  template <typename T>
  bool Read(T* value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (data_.size() - pos_ < sizeof(T)) return Fail();
    std::memcpy(value, data_.data() + pos_, sizeof(T));
    pos_ += sizeof(T);
    return true;
  }
  bool ReadSpan(size_t size, std::span<const uint8_t>* out) {
    if (data_.size() - pos_ < size) return Fail();
    *out = data_.subspan(pos_, size);
    pos_ += size;
    return true;
  }
  size_t remaining() const { return data_.size() - pos_; }
  size_t position() const { return pos_; }
  bool failed() const { return failed_; }

 private:
  bool Fail() {
    failed_ = true;
    pos_ = data_.size();
    return false;
  }
  std::span<const uint8_t> data_;
  size_t pos_ = 0;
  bool failed_ = false;
};

// Writes into a fixed span. A write that would go past the end fails and writes nothing.
class ByteWriter {
 public:
  explicit ByteWriter(std::span<uint8_t> out) : out_(out) {}

  template <typename T>
  bool Write(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return WriteSpan({reinterpret_cast<const uint8_t*>(&value), sizeof(T)});
  }
  bool WriteSpan(std::span<const uint8_t> bytes) {
    if (out_.size() - pos_ < bytes.size()) return false;
    if (!bytes.empty()) std::memcpy(out_.data() + pos_, bytes.data(), bytes.size());
    pos_ += bytes.size();
    return true;
  }
  size_t position() const { return pos_; }

 private:
  std::span<uint8_t> out_;
  size_t pos_ = 0;
};

}  // namespace elastiquant
