// kFixed, in which every code takes `bits` bits, low bit first. The last byte is filled up with
// zeros.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Returns the number of bytes that n codes take.
size_t FixedBytes(size_t n, int bits);

// Encodes the codes and returns FixedBytes(codes.size(), bits). 2 <= bits <= 8. Fails with
// kInvalidArgument if a code is >= 2^bits, and with kBufferTooSmall if `out` is smaller than
// FixedBytes(...).
Result<size_t> EncodeFixed(std::span<const uint8_t> codes, int bits, std::span<uint8_t> out);

// Fills `codes`. Fails with kCorruptData if `in` has another size than FixedBytes(...), or if a
// filling bit is set.
Status DecodeFixed(std::span<const uint8_t> in, int bits, std::span<uint8_t> codes);

}  // namespace elastiquant
