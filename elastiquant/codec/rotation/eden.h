// EDEN's quantiser of rotated blocks (Vargaftik et al., ICML 2022): the Lloyd-Max quantiser of
// a Gaussian, and a scale that makes each block come out with its own length along itself.
//
// Over uniformly random rotations the error orthogonal to a block would average out, and the
// codec would be unbiased. Ours are two rounds of random signs and a transform, which take a
// block of few large values to too few different points. A small bias remains, which falls as
// blocks grow. For a block (1, .3, .3, .3, 0, ...) it is, along one direction and relative to
// the block's norm, .006 at 1 bit in 256 coordinates, -.0014 in 1024, and less than .001 in
// 4096. In 256 coordinates it is .014 at 1/4 bit and -.0016 at 4 bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/codec/registry.h"

namespace elastiquant {

// Of 1 to 4 bits: the centroids of a standard Gaussian's right half, increasing.
std::span<const float> EdenCentroids(int bits);

// A block's first `upper` coordinates have one bit more than the others, so that any rate can
// be met; both numbers are multiples of 8.
struct EdenSplit {
  size_t upper, lower;
  int lower_bits;  // 0 to 4; of 0 bits: not sent, and 0
  size_t bytes() const;
};
// `rate` in bits / 256 of blocks whose size is a multiple of 256.
EdenSplit SplitEdenBlock(int rate, size_t size);

// Writes the codes of a rotated block of the squared norm `squares` to `codes` (one a byte) and
// returns S = squares / <c, y>, c being the centroids: 0 if there is nothing to scale.
float QuantizeEden(std::span<const float> block, double squares, const EdenSplit& split,
                   uint8_t* codes);
// block = S c.
void DequantizeEden(const uint8_t* codes, float scale, const EdenSplit& split,
                    std::span<float> block);

}  // namespace elastiquant
