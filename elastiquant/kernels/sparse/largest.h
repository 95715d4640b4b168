// Picks the largest magnitudes of a short run of floats, such as one chunk of a tensor.
// Magnitudes are compared as the bits of |v_i|, as in select.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace elastiquant {

// Where value i of rows of `width` stands that begin `stride` apart. Most widths are powers of
// two, and a division takes longer than all else that is done with a value.
inline size_t PlaceInRows(size_t i, size_t width, size_t stride) {
  if (!std::has_single_bit(width)) return i / width * stride + i % width;
  return (i >> std::countr_zero(width)) * stride + (i & (width - 1));
}

// Floats in rows, one behind the other.
struct FloatRows {
  const float* v = nullptr;
  size_t rows = 1;
  size_t width = 0;
  size_t stride = 0;

  size_t size() const { return rows * width; }
  float At(size_t i) const { return v[rows == 1 ? i : PlaceInRows(i, width, stride)]; }
};

// The longest run whose positions fit in 16 bits.
inline constexpr size_t kMaxLargestRun = size_t{1} << 15;

// Returns how many numbers `scratch` must have room for.
constexpr size_t LargestScratch(size_t n) { return 2 * (n + 64); }

// Writes the positions of the `keep` largest magnitudes, ascending; among equal ones the first
// are taken. Zeros never are, so that there may be fewer. Returns how many there are. A NaN or
// an infinity is larger than anything else. in.size() <= kMaxLargestRun, and keep >= 1.
//
// *guess is a magnitude, as bits, that somewhat more than `keep` values are expected to reach.
// It has no influence on the result, but a good one makes this about twenty times as fast; 1 is
// the slowest. It becomes one for a run of similar values.
size_t SelectLargest(const FloatRows& in, size_t keep, uint32_t* guess, uint32_t* scratch,
                     uint16_t* positions);

}  // namespace elastiquant
