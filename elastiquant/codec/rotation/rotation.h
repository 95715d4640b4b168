// Rotation by a randomised Hadamard transform: random signs, then the Walsh-Hadamard matrix
// over the square root of its size, in one round or two. It spreads what is large over a block
// and makes any block look more like Gaussian noise (Suresh et al., ICML 2017).
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/registry.h"

namespace elastiquant {

// Blocks have 4^log4_block coordinates. Those that do not fill a block are cut into smaller
// powers of four, the largest first: the scale of each is a power of two, and so exact.
struct Rotation {
  StreamKey key;
  int log4_block;  // 3 to 10
  int rounds;      // 1 or 2
  size_t block() const { return size_t{1} << 2 * log4_block; }
};

// The size of the piece that begins at `begin`, a multiple of that size, of n coordinates.
size_t RotatedPiece(const Rotation& rotation, size_t begin, size_t n);

// Values above it would be too large for the sums, and what codecs make of them.
inline constexpr float kMostRotated = 0x1p90f;

// Fails with kNonFinite if a value is NaN or infinite, and with kOutOfRange if one of the first
// `rotated`, which are to be rotated, is larger in magnitude than kMostRotated. The error names
// the first such coordinate.
Status CheckRotatable(std::span<const float> values, size_t rotated);

// out = R values; both of one size.
void Rotate(const Rotation& rotation, std::span<const float> values, Workspace& work,
            std::span<float> out);
// The sink gets R^T values, which is overwritten. False if a result is not finite.
bool RotateBack(const Rotation& rotation, std::span<float> values, const DecodeSink& sink,
                Workspace& work);

}  // namespace elastiquant
