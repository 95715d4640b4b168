// What the tests of the kernels share.
#pragma once

#include <limits>

#include "elastiquant/kernels/quantize.h"

namespace elastiquant {

inline constexpr LaneKeys kTestKeys{0x12345678, 0x9ABCDEF0};
inline constexpr RandomRun kTestRun{kTestKeys, 77};
inline constexpr float kMaxFloat = std::numeric_limits<float>::max();
inline constexpr float kInfiniteFloat = std::numeric_limits<float>::infinity();

}  // namespace elastiquant
