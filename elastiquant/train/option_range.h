// Checks of a number that an option was given, whose errors name the option.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "elastiquant/base/status.h"

namespace elastiquant {

// Returns the number as a user would write it.
template <typename T>
std::string Number(T value) {
  return nlohmann::json(value).dump();
}

template <typename T>
Status AtLeast(const char* option, T value, T least) {
  if (value >= least) return Status::Ok();
  return InvalidArgument(std::string(option) + " is " + Number(value) +
                         "; it must be at least " + Number(least));
}

// Of [low, high], or of [low, high).
inline Status Within(const char* option, double value, double low, double high,
                     bool open_high) {
  if (value >= low && (open_high ? value < high : value <= high)) return Status::Ok();
  return InvalidArgument(std::string(option) + " is " + Number(value) + "; it must be in [" +
                         Number(low) + ", " + Number(high) + (open_high ? ")" : "]"));
}

}  // namespace elastiquant
