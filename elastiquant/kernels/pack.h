// Packs codes of 1 to 8 bits, one a byte, to a dense bit stream, and unpacks them. Code i takes
// the bits [i*bits, (i+1)*bits) of the stream, low bit first; the bits after the last code are
// 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elastiquant {

// Returns the number of bytes that n codes take.
constexpr size_t PackedBytes(size_t n, int bits) {
  return n / 8 * static_cast<size_t>(bits) + (n % 8 * static_cast<size_t>(bits) + 7) / 8;
}

// Writes PackedBytes(n, bits) bytes to `packed`, 1 <= bits <= 8, and returns the bitwise or of
// all codes (0xFF for 8 bits). If that is >= 2^bits, some code did not fit and `packed` is
// meaningless.
uint8_t PackCodes(const uint8_t* codes, size_t n, int bits, uint8_t* packed);

// Reads what PackCodes has written, PackedBytes(n, bits) bytes. The bits after the last code
// are ignored.
void UnpackCodes(const uint8_t* packed, size_t n, int bits, uint8_t* codes);

}  // namespace elastiquant
