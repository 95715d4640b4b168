// The values of kept coordinates in 32, 16, 8 or 4 bits.
//
//   32  as they are
//   16  IEEE 754 binary16, times 2^exponent of the message
//   8   an integer from -127 to 127, times a step: norm / 127
//   4   an integer from -7 to 7, times a step: norm / 7
//
// A norm belongs to each 64 values, stands before them all, and is bfloat16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"

namespace elastiquant {

constexpr bool IsSparseValueWidth(int bits) {
  return bits == 32 || bits == 16 || bits == 8 || bits == 4;
}

// With these, all of binary16 are ordinary numbers or exact denormals of fp32.
inline constexpr int kMinSparseExponent = -125;
inline constexpr int kMaxSparseExponent = 112;

size_t SparseValueBytes(size_t count, int bits);

// An upper bound on |Q(v) - v|^2 / |v|^2, in expectation if the rounding is stochastic, of
// `count` values whose squares are normal numbers. Below 1.
double SparseValueError(size_t count, int bits);

struct SparseRounding {
  int bits = 16;
  int exponent = 0;         // with 16 bits
  bool stochastic = false;  // else to nearest
  LaneKeys keys{};          // of the stochastic rounding: of a coordinate's position
};

// The exponent for values up to this magnitude. With 16 bits rounded stochastically, or 8 or 4
// bits, a magnitude near the largest float cannot be held: kOutOfRange.
Result<int> SparseExponent(float largest, int bits, bool stochastic);

// Writes SparseValueBytes(...) bytes for finite values, of which values[i] stands at
// positions[i].
void WriteSparseValues(std::span<const float> values, const uint32_t* positions,
                       const SparseRounding& rounding, uint8_t* out);

// Reads as many values. False if one is not finite, or an integer is out of its range.
bool ReadSparseValues(const uint8_t* in, int bits, int exponent, std::span<float> values);

}  // namespace elastiquant
