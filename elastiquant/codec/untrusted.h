// What holds of frames that come from strangers.
//
// Any bytes give an error or finite values: DecodeFrame fails, or all values are finite and the
// same on every machine and SIMD target. DecodeAddFrame fails where DecodeFrame does; else,
// with a finite weight, it makes no NaN of finite values, and infinity only where a product or
// a sum is beyond the largest float. Nothing is written outside the output, and nothing is
// allocated that is not in proportion to it. But its size is the frame's to say: ask before you
// allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/codec/codec.h"

namespace elastiquant {

// Values that a frame may claim to have unless its receiver says otherwise. 2^28 floats are a
// GiB: more than training sends in one message, and less than brings a machine down.
inline constexpr size_t kDefaultMaxElements = size_t{1} << 28;

// kOutOfRange if the frame claims more than `max_elements`, as 44 bytes may claim 2^32 - 1. The
// form without it, in codec.h, takes kDefaultMaxElements.
Result<FrameSummary> InspectFrame(std::span<const uint8_t> frame, size_t max_elements);

}  // namespace elastiquant
