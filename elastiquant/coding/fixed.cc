#include "elastiquant/coding/fixed.h"

#include <string>

#include "elastiquant/kernels/pack.h"

namespace elastiquant {

size_t FixedBytes(size_t n, int bits) { return PackedBytes(n, bits); }

Result<size_t> EncodeFixed(std::span<const uint8_t> codes, int bits, std::span<uint8_t> out) {
  const size_t size = FixedBytes(codes.size(), bits);
  if (out.size() < size) {
    return BufferTooSmall("fixed coding needs " + std::to_string(size) + " bytes, but has " +
                          std::to_string(out.size()));
  }
  const int all = PackCodes(codes.data(), codes.size(), bits, out.data());
  if (all >> bits != 0) {
    return InvalidArgument("fixed coding: a code does not fit in " + std::to_string(bits) +
                           " bits");
  }
  return size;
}

Status DecodeFixed(std::span<const uint8_t> in, int bits, std::span<uint8_t> codes) {
  const size_t size = FixedBytes(codes.size(), bits);
  if (in.size() != size) {
    return CorruptData("fixed coding: " + std::to_string(codes.size()) + " codes of " +
                       std::to_string(bits) + " bits take " + std::to_string(size) +
                       " bytes, but there are " + std::to_string(in.size()));
  }
  const int used = static_cast<int>(codes.size() % 8) * bits % 8;  // bits of the last byte
  if (used != 0 && in.back() >> used != 0) {
    return CorruptData("fixed coding: the filling bits of the last byte are not zero");
  }
  UnpackCodes(in.data(), codes.size(), bits, codes.data());
  return Status::Ok();
}

}  // namespace elastiquant
