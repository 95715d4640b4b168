#include "elastiquant/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace elastiquant {
namespace {

// A byte's worth of division by the (bit-reversed) Castagnoli polynomial.
constexpr uint32_t ShiftByte(uint32_t crc) {
  for (int k = 0; k < 8; ++k) crc = (crc & 1) ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
  return crc;
}

// kSlices[k][b] is the checksum state of byte b followed by k zero bytes.
using Slices = std::array<std::array<uint32_t, 256>, 8>;
constexpr Slices MakeSlices() {
  Slices slices{};
  for (uint32_t b = 0; b < 256; ++b) slices[0][b] = ShiftByte(b);
  for (size_t k = 1; k < 8; ++k) {
    for (uint32_t b = 0; b < 256; ++b) {
      const uint32_t last = slices[k - 1][b];
      slices[k][b] = (last >> 8) ^ slices[0][last & 0xFF];
    }
  }
  return slices;
}
constexpr Slices kSlices = MakeSlices();

// Eight table look-ups for eight bytes at once, where the CPU has no instruction for it.
uint32_t Portable(const uint8_t* p, size_t n, uint32_t crc) {
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kSlices[7 - k][word >> 8 * k & 0xFF];
  }
  for (; n > 0; --n, ++p) crc = (crc >> 8) ^ kSlices[0][(crc ^ *p) & 0xFF];
  return crc;
}

#if defined(__x86_64__)
// The instruction takes three cycles but one can start each cycle: three stripes run at once,
// and the state of a stripe is carried over the zero bytes that stand for those behind it.
constexpr size_t kStripe = 1024;

// Carries a state over kStripe zero bytes, byte by byte of the state (the map is linear).
using Carry = std::array<std::array<uint32_t, 256>, 4>;
constexpr Carry MakeCarry() {
  // columns[i] is where bit i of a state goes; squaring the map doubles the zero bytes.
  std::array<uint32_t, 32> columns{};
  for (size_t i = 0; i < 32; ++i) columns[i] = ShiftByte(uint32_t{1} << i);
  const auto apply = [&columns](uint32_t state) {
    uint32_t moved = 0;
    for (size_t i = 0; i < 32; ++i) moved ^= (state >> i & 1) ? columns[i] : 0;
    return moved;
  };
  for (size_t bytes = 1; bytes < kStripe; bytes *= 2) {
    std::array<uint32_t, 32> squared{};
    for (size_t i = 0; i < 32; ++i) squared[i] = apply(columns[i]);
    columns = squared;
  }
  Carry carry{};
  for (size_t k = 0; k < 4; ++k) {
    for (uint32_t b = 0; b < 256; ++b) carry[k][b] = apply(b << 8 * k);
  }
  return carry;
}
constexpr Carry kCarry = MakeCarry();

uint32_t CarryOverStripe(uint32_t crc) {
  return kCarry[0][crc & 0xFF] ^ kCarry[1][crc >> 8 & 0xFF] ^ kCarry[2][crc >> 16 & 0xFF] ^
         kCarry[3][crc >> 24];
}

__attribute__((target("sse4.2"))) uint64_t Step(const uint8_t* p, uint64_t crc) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return _mm_crc32_u64(crc, word);
}

__attribute__((target("sse4.2"))) uint32_t Hardware(const uint8_t* p, size_t n, uint32_t crc) {
  for (; n >= 3 * kStripe; n -= 3 * kStripe, p += 3 * kStripe) {
    uint64_t a = crc, b = 0, c = 0;
    for (size_t i = 0; i < kStripe; i += 8) {
      a = Step(p + i, a);
      b = Step(p + kStripe + i, b);
      c = Step(p + 2 * kStripe + i, c);
    }
    const uint32_t ab = CarryOverStripe(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b);
    crc = CarryOverStripe(ab) ^ static_cast<uint32_t>(c);
  }
  uint64_t tail = crc;
  for (; n >= 8; n -= 8, p += 8) tail = Step(p, tail);
  crc = static_cast<uint32_t>(tail);
  for (; n > 0; --n, ++p) crc = _mm_crc32_u8(crc, *p);
  return crc;
}
#endif

}  // namespace

uint32_t Crc32c(std::span<const uint8_t> data, uint32_t crc) {
  crc = ~crc;
#if defined(__x86_64__)
  static const bool hardware = __builtin_cpu_supports("sse4.2");
  if (hardware) return ~Hardware(data.data(), data.size(), crc);
#endif
  return ~Portable(data.data(), data.size(), crc);
}

uint32_t Crc32cPortable(std::span<const uint8_t> data, uint32_t crc) {
  return ~Portable(data.data(), data.size(), ~crc);
}

}  // namespace elastiquant
