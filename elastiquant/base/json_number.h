// Numbers in JSON, which has no NaN and no infinity.
#pragma once

#include <cmath>
#include <limits>
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

// Returns the number that NumberOrNull was given, or NaN for null. Throws json::exception if it
// is neither.
inline double NumberOrNan(const nlohmann::json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace elastiquant
