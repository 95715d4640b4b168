#include "elastiquant/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
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
__attribute__((target("sse4.2"))) uint32_t Instruction(const uint8_t* p, size_t n,
                                                       uint32_t crc) {
  uint64_t state = crc;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    state = _mm_crc32_u64(state, word);
  }
  crc = static_cast<uint32_t>(state);
  for (; n > 0; --n, ++p) crc = _mm_crc32_u8(crc, *p);
  return crc;
}

// x^n modulo the polynomial, bit-reversed as in a 64-bit half of a carry-less multiplication.
constexpr int64_t PowerOfX(size_t n) {
  uint32_t power = 1u << 31;
  for (; n > 0; --n) power = (power & 1) ? (power >> 1) ^ 0x82F63B78u : power >> 1;
  return static_cast<int64_t>(uint64_t{power} << 32);
}

// Folding (Gopal et al., Fast CRC Computation Using PCLMULQDQ Instruction, 2009): the data is
// cut into blocks, and each 128-bit lane of a block is carried over to the next block by two
// carry-less multiplications; the block that is left has the checksum of all of them. The
// instruction above, whose steps wait for each other, is several times slower. A lane's first
// half stands 64 bits further from the end, and a product of reversed polynomials comes out
// times x: hence the exponents.
__attribute__((target("pclmul,sse4.2"))) uint32_t Fold128(const uint8_t* p, size_t n,
                                                          uint32_t crc) {
  constexpr size_t kLanes = 8;
  constexpr size_t kBlock = kLanes * 16;
  if (n < 4 * kBlock) return Instruction(p, n, crc);
  const auto load = [](const uint8_t* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  };
  constexpr int64_t kFirst = PowerOfX(8 * kBlock + 63);
  constexpr int64_t kSecond = PowerOfX(8 * kBlock - 1);
  const __m128i powers = _mm_set_epi64x(kSecond, kFirst);
  __m128i lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = load(p + 16 * i);
  lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(crc)));
  for (p += kBlock, n -= kBlock; n >= kBlock; p += kBlock, n -= kBlock) {
    for (size_t i = 0; i < kLanes; ++i) {
      const __m128i first = _mm_clmulepi64_si128(lanes[i], powers, 0x00);
      const __m128i second = _mm_clmulepi64_si128(lanes[i], powers, 0x11);
      lanes[i] = _mm_xor_si128(_mm_xor_si128(first, second), load(p + 16 * i));
    }
  }
  uint8_t block[kBlock];
  std::memcpy(block, lanes, kBlock);
  return Instruction(p, n, Instruction(block, kBlock, 0));
}

__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) uint32_t Fold512(const uint8_t* p,
                                                                      size_t n, uint32_t crc) {
  constexpr size_t kVectors = 4;
  constexpr size_t kBlock = kVectors * 64;
  if (n < 4 * kBlock) return Instruction(p, n, crc);
  constexpr int64_t kFirst = PowerOfX(8 * kBlock + 63);
  constexpr int64_t kSecond = PowerOfX(8 * kBlock - 1);
  const __m512i powers = _mm512_set4_epi64(kSecond, kFirst, kSecond, kFirst);
  __m512i vectors[kVectors];
  for (size_t i = 0; i < kVectors; ++i) vectors[i] = _mm512_loadu_si512(p + 64 * i);
  vectors[0] = _mm512_xor_si512(
      vectors[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  for (p += kBlock, n -= kBlock; n >= kBlock; p += kBlock, n -= kBlock) {
    for (size_t i = 0; i < kVectors; ++i) {
      const __m512i first = _mm512_clmulepi64_epi128(vectors[i], powers, 0x00);
      const __m512i second = _mm512_clmulepi64_epi128(vectors[i], powers, 0x11);
      const __m512i next = _mm512_loadu_si512(p + 64 * i);
      vectors[i] = _mm512_ternarylogic_epi64(first, second, next, 0x96);  // xor of the three
    }
  }
  uint8_t block[kBlock];
  std::memcpy(block, vectors, kBlock);
  return Instruction(p, n, Instruction(block, kBlock, 0));
}
#endif

using Update = uint32_t (*)(const uint8_t* p, size_t n, uint32_t crc);
template <Update update>
uint32_t Finished(std::span<const uint8_t> data, uint32_t crc) {
  return ~update(data.data(), data.size(), ~crc);
}

}  // namespace

std::vector<Crc32cFunction> Crc32cFunctions() {
  std::vector<Crc32cFunction> functions;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")) {
      functions.push_back(Finished<Fold512>);
    }
    if (__builtin_cpu_supports("pclmul")) functions.push_back(Finished<Fold128>);
    functions.push_back(Finished<Instruction>);
  }
#endif
  functions.push_back(Finished<Portable>);
  return functions;
}

uint32_t Crc32c(std::span<const uint8_t> data, uint32_t crc) {
  static const Crc32cFunction best = Crc32cFunctions().front();
  return best(data, crc);
}

}  // namespace elastiquant
