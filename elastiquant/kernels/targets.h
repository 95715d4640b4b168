// The instruction sets that the kernels are compiled for and this CPU can run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Highway's names, best first: "AVX3" (AVX-512), "AVX2", "SSE4", "SSSE3", "NEON", "SCALAR", ...
std::vector<std::string> SimdTargets();

// Sends all kernels of this process to one of SimdTargets(), or to the best with "auto". Every
// target gives the same bytes; only the speed differs. Call it while no kernel runs. Unknown
// names fail with kUnsupported and the list.
Status UseSimdTarget(std::string_view name);

// The target in use.
std::string CurrentSimdTarget();

}  // namespace elastiquant
