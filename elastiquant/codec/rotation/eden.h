// EDEN's quantiser of rotated blocks (Vargaftik et al., ICML 2022): the Lloyd-Max quantiser of
// a Gaussian, and a scale that makes each block come out with its own length along itself.
//
// What a block loses orthogonal to itself would average out over uniform rotations. Ours are
// two rounds of signs and transform, which leave blocks of a few large values on too few
// points, so that the codec is unbiased but for a remainder, which falls as blocks grow. Of a
// block (1, .3, .3, .3, 0, ...) there remains at 1 bit .006 of its norm if it has 256
// coordinates, -.0014 if it has 1024, and less than .001 if it has 4096; of the one of 256 it
// is .014 at 1/4 bit and -.0016 at 4 bits.
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
