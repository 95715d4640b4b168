// What holds for frames that come from strangers.
//
// Any bytes give an error or finite values: either DecodeFrame fails, or all values are finite
// and the same on every machine and SIMD target. DecodeAddFrame fails where DecodeFrame does.
// Where it does not, and the weight is finite, it makes no NaN of finite values, and makes
// infinity only where a product or a sum is beyond the largest float. Nothing is written
// outside the output, and nothing is allocated that is not in proportion to it. But it is the
// frame that says how large the output is, so ask for its size before you allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/codec/codec.h"

namespace elastiquant {

// How many values a frame may claim to have unless its receiver says otherwise. 2^28 floats are
// a GiB, which is more than training sends in one message, and less than brings a machine down.
inline constexpr size_t kDefaultMaxElements = size_t{1} << 28;

// Returns what a frame says of itself. Fails with kOutOfRange if it claims more than
// `max_elements` values: 44 bytes may claim 2^32 - 1 of them. The form without this argument,
// in codec.h, takes kDefaultMaxElements.
Result<FrameSummary> InspectFrame(std::span<const uint8_t> frame, size_t max_elements);

}  // namespace elastiquant
