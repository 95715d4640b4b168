// Numbers in JSON, which has no NaN and no infinity.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace elastiquant {

// Returns the value, or null if it is NaN or infinite, or there is none.
inline nlohmann::json NumberOrNull(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

inline nlohmann::json NumberOrNull(const std::optional<double>& value) {
  return value ? NumberOrNull(*value) : nlohmann::json(nullptr);
}

}  // namespace elastiquant
