// What a frame of positions and values says of itself, and where everything stands in its
// payload (docs/frame-format.md, "sparse").
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "elastiquant/codec/frame.h"

namespace elastiquant {

inline constexpr size_t kSparseParameterBytes = 12;
// Kept coordinates that are coded together: what one thread works on.
inline constexpr size_t kSparseSegment = 4096;
// Values of 8 and 4 bits that share a norm.
inline constexpr size_t kSparseBlock = 64;

// Of values that are floats of no fixed width (coding/float_code.h). Not with drawn positions
// or marks.
inline constexpr int kExactBits = 0;

enum class SparsePlacement : uint8_t {
  kListed = 0,  // the positions are in the payload
  kDrawn = 1,   // those of the smallest random numbers, which the key gives
};

struct SparseFormat {
  SparsePlacement placement = SparsePlacement::kListed;
  int bits = 16;         // of a value: 32, 16, 8 or 4; or kExactBits
  int exponent = 0;      // with 16 bits: values are binary16 times 2^exponent
  uint32_t dropped = 0;  // coordinates that are not kept
  float magnitude = 0;   // of kept coordinates that have a sign only; 0: there are none

  bool marked() const { return magnitude > 0; }
};
std::array<uint8_t, kSparseParameterBytes> WriteSparseParameters(const SparseFormat& format);
Result<SparseFormat> ReadSparseParameters(const FrameView& frame);

constexpr size_t SparseSegments(size_t kept) {
  return (kept + kSparseSegment - 1) / kSparseSegment;
}
inline size_t SparseSegmentSize(size_t kept, size_t segment) {
  return std::min(kSparseSegment, kept - segment * kSparseSegment);
}

// Front of a payload with listed positions: for each segment its last position, and where its
// bytes end, counted from behind the code's table.
struct SparseFront {
  size_t segments;
  size_t ends_at() const { return 4 * segments; }
  size_t table_at() const { return 12 * segments; }
};

}  // namespace elastiquant
