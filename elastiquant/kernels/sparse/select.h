// Picks coordinates by magnitude or by lot. Magnitudes are compared as the bits of |v_i|, which
// have the order of the floats; those of NaN and infinity are at least kNonFiniteBits
// (norms.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "elastiquant/base/random.h"

namespace elastiquant {

// Returns the number of coordinates whose |v_i| has bits of at least `least`, which is below
// 2^31.
size_t CountMagnitudes(const float* v, size_t n, uint32_t least);

// Writes first + i, ascending, for each coordinate that CountMagnitudes counts, and returns
// their number. Writes nothing behind the last one.
size_t CollectMagnitudes(const float* v, size_t n, uint32_t least, uint32_t first,
                         uint32_t* positions);

// Does the same for the coordinates with RandomBits(keys, first + i) < limit.
size_t CollectDrawn(LaneKeys keys, uint32_t first, size_t n, uint32_t limit,
                    uint32_t* positions);

// Does the same for the coordinates with |v_i| >= magnitude, and for those others for which
// half of RandomBits(keys, first + i) is below |v_i| / magnitude * 2^31, rounded. magnitude is
// above 0 and not infinite. NaN and infinity are collected.
size_t CollectLikely(const float* v, size_t n, float magnitude, LaneKeys keys, uint32_t first,
                     uint32_t* positions);

}  // namespace elastiquant
