// Numbers in JSON, which has no NaN and no infinity.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>

namespace elastiquant {

// Returns the value, or null if it is NaN or infinite.
inline nlohmann::json NumberOrNull(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

}  // namespace elastiquant
