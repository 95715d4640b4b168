// From kept coordinates to a frame.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/sparse/sparse_format.h"
#include "elastiquant/codec/sparse/sparse_select.h"
#include "elastiquant/codec/sparse/sparse_values.h"

namespace elastiquant {

// What is sent, once the coordinates are chosen.
struct SparseMessage {
  SparseSelection kept;
  // Of those kept whose magnitude is smaller a sign is sent; or, in what has been decoded and
  // rounded already, of those whose magnitude is this. 0: of none.
  float magnitude = 0;
  bool decoded = false;

  bool Marked(float value) const {
    const float size = std::fabs(value);
    return decoded ? size == magnitude : size < magnitude;
  }
};

// The most bytes of a frame of n values, `kept` of which are sent.
size_t MaxSparseFrameBytes(size_t n, size_t kept, int bits, SparsePlacement placement);

// `frame` has room for as much. Returns the bytes of the frame. Drawn coordinates have no
// marks. With kExactBits values are written with 32 bits if that is shorter.
size_t WriteSparseFrame(const SparseMessage& message, size_t elements,
                        SparsePlacement placement, const SparseRounding& rounding,
                        StreamKey key, Workspace& work, std::span<uint8_t> frame);

}  // namespace elastiquant
