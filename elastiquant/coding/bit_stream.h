// Bits in a 64-bit container, the first bit of a stream being the highest of its first byte.
// Moving between container and memory is explicit, so that a caller pays for it once for
// several codes: Add(...) Add(...) Flush(), and Reload() Peek(...) Skip(...) Peek(...)
// Skip(...).
#pragma once

#include <cassert>
#include <cstdint>
#include <cstring>
#include <span>

namespace elastiquant {

class BitWriter {
 public:
  // Flush() stores whole words: give 8 bytes more than the bits need.
  explicit BitWriter(std::span<uint8_t> out)
      : next_(out.data()), begin_(out.data()), end_(out.data() + out.size()) {}

  // At most this many bits may be added from one Flush() to the next.
  static constexpr int kBitsPerFlush = 56;

  // Appends the low `count` bits of `bits`; those above must be 0. 1 <= count <= kBitsPerFlush.
  void Add(uint64_t bits, int count) {
    assert(1 <= count && count <= kBitsPerFlush && used_ + count < 64);
    used_ += count;
    container_ |= bits << (64 - used_);
  }

  // Moves whole bytes to memory. At the end of `out` it stops, and Finish() will say so.
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

  // Fills the last byte up with zeros. False if `out` was too small; else *size is the stream's
  // bytes.
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

// Reading past the end gives zeros, never foreign memory; Overrun() tells.
class BitReader {
 public:
  explicit BitReader(std::span<const uint8_t> in) : in_(in) { Reload(); }

  // At least this many bits can be peeked at and skipped from one Reload() to the next.
  static constexpr int kBitsPerReload = 57;

  void Reload() {
    const size_t byte = position_ / 8;
    if (byte + 8 <= in_.size()) {
      std::memcpy(&container_, in_.data() + byte, 8);
    } else {
      container_ = LastBytes(byte);
    }
    container_ = __builtin_bswap64(container_) << (position_ % 8);
  }

  // The next `count` bits, 1 <= count <= kBitsPerReload.
  uint64_t Peek(int count) const { return container_ >> (64 - count); }

  void Skip(int count) {
    container_ <<= count;
    position_ += static_cast<size_t>(count);
  }

  // Goes on to the next whole byte; false if a bit that is left out is not zero.
  bool SkipToByte();

  size_t position() const { return position_; }  // in bits

  // True once bits after the end have been skipped.
  bool Overrun() const { return position_ > in_.size() * 8; }

  // True if what is left is less than a byte, all zeros: where a BitWriter would have finished.
  bool AtFinish() const;

 private:
  uint64_t LastBytes(size_t byte) const;

  std::span<const uint8_t> in_;
  size_t position_ = 0;  // in bits
  uint64_t container_ = 0;
};

}  // namespace elastiquant
