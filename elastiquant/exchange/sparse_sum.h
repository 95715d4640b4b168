// The frames that carry the sums of sparse messages. They are exact, so that the sums need no
// second error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"

namespace elastiquant {

// Returns the room that EncodeSparseSum needs for a sum of n values.
size_t MaxSparseSumBytes(size_t n);

// Writes a frame of the values that are not 0, or of all if that is shorter. It decodes to the
// same bits, but for the sign of zeros. The sum must be finite, and frame.size() >=
// MaxSparseSumBytes(sum.size()). Returns the frame's size.
Result<size_t> EncodeSparseSum(std::span<const float> sum, StreamKey key, Workspace& work,
                               std::span<uint8_t> frame);

}  // namespace elastiquant
