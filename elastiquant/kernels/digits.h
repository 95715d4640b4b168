// Packs digits in a base that need not be a power of two, one a byte, to a dense bit stream,
// and unpacks them. A group of k digits d_0 ... d_(k-1) is the number sum d_i base^i, which
// takes b bits; group g has bits [g*b, (g+1)*b) of the stream, low bit first. k and b are the
// least with b/k at most 2 % above log2(base). The last group is filled up with digits 0, and
// the last byte with bits 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace elastiquant {

// Returns whether the functions below take this base: 2 to 16, 32, 64, 128 and 256.
constexpr bool IsDigitBase(int base) {
  return base >= 2 && (base <= 16 || base == 32 || base == 64 || base == 128 || base == 256);
}

// Returns the number of bytes that n digits take. For this and all functions below
// IsDigitBase(base) must hold.
size_t PackedDigitBytes(size_t n, int base);

// Writes PackedDigitBytes(n, base) bytes. Returns false if a digit is not below `base`; then
// what was written is meaningless.
bool PackDigits(const uint8_t* digits, size_t n, int base, uint8_t* packed);

// Reads what PackDigits has written. Returns false if a group is not below base^k, or if a
// filling digit or bit is not 0.
bool UnpackDigits(const uint8_t* packed, size_t n, int base, uint8_t* digits);

}  // namespace elastiquant
