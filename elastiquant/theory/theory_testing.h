// What the tests of the theory share.
#pragma once

#include <limits>

namespace elastiquant::theory {

// As the order of a norm it means the largest magnitude.
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace elastiquant::theory
