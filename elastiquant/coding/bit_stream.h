// Writes and reads streams of bits by way of a 64-bit container. The first bit of a stream is
// the highest bit of its first byte. Callers move bits between container and memory explicitly,
// so that they pay for it once for several codes: Add(...) Add(...) Flush(), and Reload()
// Peek(...) Skip(...) Peek(...) Skip(...).
#pragma once

#include <cassert>
#include <cstdint>
#include <cstring>
#include <span>

namespace elastiquant {

// Writes a stream of bits to a span.
class BitWriter {
 public:
  // Flush() stores whole words, so `out` must have 8 bytes more than the bits need.
  explicit BitWriter(std::span<uint8_t> out)
      : next_(out.data()), begin_(out.data()), end_(out.data() + out.size()) {}

  // At most this many bits may be added between two calls of Flush().
  static constexpr int kBitsPerFlush = 56;

  // Appends the low `count` bits of `bits`; those above must be 0. 1 <= count <= kBitsPerFlush.
  void Add(uint64_t bits, int count) {
    assert(1 <= count && count <= kBitsPerFlush && used_ + count < 64);
    used_ += count;
    container_ |= bits << (64 - used_);
  }

  // Moves whole bytes to memory. If fewer than 8 bytes are left in `out`, the bits are dropped
  // and Finish() will return false.
  void Flush() {
    if (end_ - next_ < 8) {
      overflow_ = true;
      container_ = 0;
      used_ = 0;
      return;
    }
    const uint64_t big_endian = __builtin_bswap64(container_);
    std::memcpy(next_, &big_endian, 8);
    next_ += used_ / 8;
    container_ <<= used_ & ~7;
    used_ &= 7;
  }

  // Fills the last byte up with zeros and sets *size to the number of bytes in the stream.
  // Returns false if `out` was too small.
  bool Finish(size_t* size) {
    Flush();
    *size = static_cast<size_t>(next_ - begin_) + (used_ != 0);
    return !overflow_;
  }

 private:
  uint64_t container_ = 0;  // the next bits, from the highest down
  int used_ = 0;
  bool overflow_ = false;
  uint8_t* next_;
  uint8_t* begin_;
  uint8_t* end_;
};

// Reads a stream of bits from a span. Reading past its end gives zeros, never foreign memory;
// Overrun() tells whether it has happened.
class BitReader {
 public:
  explicit BitReader(std::span<const uint8_t> in) : in_(in) { Reload(); }

  // At least this many bits can be peeked at and skipped between two calls of Reload().
  static constexpr int kBitsPerReload = 57;

  // Fills the container from memory.
  void Reload() {
    const size_t byte = position_ / 8;
    if (byte + 8 <= in_.size()) {
      std::memcpy(&container_, in_.data() + byte, 8);
    } else {
      container_ = LastBytes(byte);
    }
    container_ = __builtin_bswap64(container_) << (position_ % 8);
  }

  // Returns the next `count` bits without skipping them. 1 <= count <= kBitsPerReload.
  uint64_t Peek(int count) const { return container_ >> (64 - count); }

  void Skip(int count) {
    container_ <<= count;
    position_ += static_cast<size_t>(count);
  }

  // Skips to the next whole byte. Returns false if a bit that was skipped is not zero.
  bool SkipToByte();

  size_t position() const { return position_; }  // in bits

  // Returns whether bits after the end have been skipped.
  bool Overrun() const { return position_ > in_.size() * 8; }

  // Returns whether less than a byte is left and all of it is zero, as where a BitWriter
  // finishes.
  bool AtFinish() const;

 private:
  uint64_t LastBytes(size_t byte) const;

  std::span<const uint8_t> in_;
  size_t position_ = 0;  // in bits
  uint64_t container_ = 0;
};

}  // namespace elastiquant
