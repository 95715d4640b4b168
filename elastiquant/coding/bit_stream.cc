#include "elastiquant/coding/bit_stream.h"

namespace elastiquant {

bool BitReader::AtFinish() const {
  const size_t bits = in_.size() * 8;
  if (position_ > bits || bits - position_ >= 8) return false;
  const unsigned filling = static_cast<unsigned>(bits - position_);
  return filling == 0 || (in_.back() & ((1u << filling) - 1)) == 0;
}

bool BitReader::SkipToByte() {
  Reload();
  const int filling = static_cast<int>(-position_ % 8);
  if (filling == 0) return true;
  const bool zeros = Peek(filling) == 0;
  Skip(filling);
  return zeros;
}

uint64_t BitReader::LastBytes(size_t byte) const {
  uint64_t word = 0;
  if (byte < in_.size()) std::memcpy(&word, in_.data() + byte, in_.size() - byte);
  return word;
}

}  // namespace elastiquant
