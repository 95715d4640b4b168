#include "elastiquant/codec/sparse/sparse_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "elastiquant/codec/sparse/sparse_format.h"
#include "elastiquant/kernels/convert.h"
#include "elastiquant/kernels/norms.h"

namespace elastiquant {
namespace {

constexpr float kMaxHalf = 65504;
constexpr uint16_t kMaxBf16 = 0x7F7F;

constexpr int Levels(int bits) { return (1 << (bits - 1)) - 1; }
size_t Blocks(size_t count) { return (count + kSparseBlock - 1) / kSparseBlock; }

float FromBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Both sides compute it: one division, rounded once.
float StepOf(uint16_t norm, int bits) {
  return FromBf16(norm) / static_cast<float>(Levels(bits));
}

// The least norm whose last level is not below `largest`, which is at most kMaxBf16's value.
uint16_t NormFor(float largest, int bits) {
  const uint32_t float_bits = std::bit_cast<uint32_t>(largest);
  auto norm = static_cast<uint16_t>((float_bits + 0xFFFF) >> 16);
  const auto reach = [&] { return static_cast<double>(StepOf(norm, bits)) * Levels(bits); };
  while (reach() < largest) ++norm;
  return norm;
}

// A scaled value, of a magnitude up to 65504, on one of its two neighbours in binary16 with the
// probabilities that make the mean right.
float StochasticHalf(float scaled, uint32_t random) {
  const float size = std::fabs(scaled);
  float rounded = 0;
  if (size >= 0x1p-14f) {  // 13 bits are to be dropped
    const uint32_t bits = std::bit_cast<uint32_t>(size) + (random >> 19);
    rounded = std::bit_cast<float>(bits & ~0x1FFFu);
  } else {
    const float place = size * 0x1p24f, low = std::floor(place);
    rounded = (low + (UniformFloat(random) < place - low ? 1.0f : 0.0f)) * 0x1p-24f;
  }
  return std::copysign(rounded, scaled);
}

void WriteHalves(std::span<const float> values, const uint32_t* positions,
                 const SparseRounding& rounding, uint8_t* out) {
  // 2^125 is the largest factor, so both factors are ordinary numbers.
  const float scale = std::ldexp(1.0f, -rounding.exponent);
  float block[kSparseBlock];
  for (size_t begin = 0; begin < values.size(); begin += kSparseBlock) {
    const size_t size = std::min(kSparseBlock, values.size() - begin);
    for (size_t i = 0; i < size; ++i) {
      block[i] = values[begin + i] * scale;
      if (!rounding.stochastic) continue;
      block[i] = StochasticHalf(block[i], RandomBits(rounding.keys, positions[begin + i]));
    }
    PackFp16(block, size, out + 2 * begin);
  }
}

int IntegerOf(float value, float step, int levels, const SparseRounding& rounding,
              uint32_t position) {
  if (step == 0) return 0;
  const double place = std::fabs(static_cast<double>(value)) / static_cast<double>(step);
  const double low = std::floor(place), rest = place - low;
  const double chance =
      rounding.stochastic ? RandomBits(rounding.keys, position) * 0x1p-32 : 0.5;
  const bool up = rounding.stochastic ? chance < rest : chance <= rest;
  const int size = std::min(static_cast<int>(low) + (up ? 1 : 0), levels);
  return value < 0 ? -size : size;
}

void WriteIntegers(std::span<const float> values, const uint32_t* positions,
                   const SparseRounding& rounding, uint8_t* out) {
  const int levels = Levels(rounding.bits);
  uint8_t* codes = out + 2 * Blocks(values.size());
  if (rounding.bits == 4) std::fill_n(codes, (values.size() + 1) / 2, uint8_t{0});
  for (size_t begin = 0; begin < values.size(); begin += kSparseBlock) {
    const size_t size = std::min(kSparseBlock, values.size() - begin);
    const float largest = std::bit_cast<float>(AbsMaxBits(values.data() + begin, size));
    const uint16_t norm = NormFor(largest, rounding.bits);
    std::memcpy(out + 2 * (begin / kSparseBlock), &norm, sizeof(norm));
    const float step = StepOf(norm, rounding.bits);
    for (size_t i = begin; i < begin + size; ++i) {
      const auto code =
          static_cast<uint8_t>(IntegerOf(values[i], step, levels, rounding, positions[i]));
      if (rounding.bits == 8) {
        codes[i] = code;
      } else {
        codes[i / 2] |= static_cast<uint8_t>((code & 15) << 4 * (i % 2));
      }
    }
  }
}

bool ReadIntegers(const uint8_t* in, int bits, std::span<float> values) {
  const uint8_t* codes = in + 2 * Blocks(values.size());
  const int levels = Levels(bits);
  if (bits == 4 && values.size() % 2 != 0 && codes[values.size() / 2] >> 4 != 0) return false;
  bool good = true;
  for (size_t begin = 0; begin < values.size(); begin += kSparseBlock) {
    uint16_t norm = 0;
    std::memcpy(&norm, in + 2 * (begin / kSparseBlock), sizeof(norm));
    if (norm > kMaxBf16) return false;
    const float step = StepOf(norm, bits);
    const size_t end = std::min(begin + kSparseBlock, values.size());
    for (size_t i = begin; i < end; ++i) {
      const int code = bits == 8 ? static_cast<int8_t>(codes[i])
                                 : static_cast<int8_t>((codes[i / 2] >> 4 * (i % 2)) << 4) >> 4;
      good &= code >= -levels;
      values[i] = step * static_cast<float>(code);
    }
  }
  return good;
}

}  // namespace

size_t SparseValueBytes(size_t count, int bits) {
  const size_t norms = bits < 16 ? 2 * Blocks(count) : 0;
  return norms + (count * static_cast<size_t>(bits) + 7) / 8;
}

double SparseValueError(size_t count, int bits) {
  if (bits == 32 || bits == kExactBits) return 0;
  // The last place of binary16 is 2^-10 of a value, or 2^-38 of the largest: half of it to
  // nearest, and a variance of a quarter of its square, are the same.
  if (bits == 16) return 0x1p-22 + static_cast<double>(count) * 0x1p-78;
  // The same of a step, in all 64 values, against the one that is the norm; rounding the norm
  // up to bfloat16, and to where its last level reaches the largest value, adds 2^-6.
  const double step = (1 + 0x1p-6) / Levels(bits);
  return kSparseBlock * step * step / 4;
}

Result<int> SparseExponent(float largest, int bits, bool stochastic) {
  const float limit = bits == 16 && stochastic ? std::ldexp(kMaxHalf, kMaxSparseExponent)
                      : bits == 8 || bits == 4 ? FromBf16(kMaxBf16 - 1)
                                               : std::numeric_limits<float>::max();
  if (largest > limit) {
    return OutOfRange("a value of " + std::to_string(largest) + " exceeds what " +
                      std::to_string(bits) + " bits can hold; use bits=32");
  }
  if (bits != 16 || largest == 0) return 0;
  // To a magnitude from 2^14, where rounding up stays finite.
  return std::clamp(std::ilogb(largest) - 14, kMinSparseExponent, kMaxSparseExponent);
}

void WriteSparseValues(std::span<const float> values, const uint32_t* positions,
                       const SparseRounding& rounding, uint8_t* out) {
  if (rounding.bits == 32) {
    if (!values.empty()) std::memcpy(out, values.data(), values.size_bytes());
  } else if (rounding.bits == 16) {
    WriteHalves(values, positions, rounding, out);
  } else {
    WriteIntegers(values, positions, rounding, out);
  }
}

bool ReadSparseValues(const uint8_t* in, int bits, int exponent, std::span<float> values) {
  if (bits == 32) return UnpackFp32(in, values.size(), values.data());
  if (bits < 16) return ReadIntegers(in, bits, values);
  if (!UnpackFp16(in, values.size(), values.data())) return false;
  const float scale = std::ldexp(1.0f, exponent);
  for (float& value : values) value *= scale;
  return true;
}

}  // namespace elastiquant
