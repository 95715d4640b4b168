// The instruction sets that the kernels are compiled for and this CPU can run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Returns Highway's names of these instruction sets, the best first: "AVX3" (AVX-512), "AVX2",
// "SSE4", "SSSE3", "NEON", "SCALAR", ...
std::vector<std::string> SimdTargets();

// Sends all kernels of this process to one of SimdTargets(), or to the best with "auto". Every
// target gives the same bytes; only the speed differs. It must not be called while a kernel
// runs. For any other name it fails with kUnsupported and an error that lists the valid ones.
Status UseSimdTarget(std::string_view name);

// Returns the name of the target in use.
std::string CurrentSimdTarget();

}  // namespace elastiquant
