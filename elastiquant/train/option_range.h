// Checks of a number that an option was given, whose errors name the option.
#pragma once

#include <string>

#include "elastiquant/base/number.h"
#include "elastiquant/base/status.h"

namespace elastiquant {

template <typename T>
Status AtLeast(const char* option, T value, T least) {
  if (value >= least) return Status::Ok();
  return InvalidArgument(std::string(option) + " is " + NumberText(value) +
                         "; it must be at least " + NumberText(least));
}

// Of [least, most].
template <typename T>
Status Between(const char* option, T value, T least, T most) {
  EQ_RETURN_IF_ERROR(AtLeast(option, value, least));
  if (value <= most) return Status::Ok();
  return InvalidArgument(std::string(option) + " is " + NumberText(value) +
                         "; it must be at most " + NumberText(most));
}

// Of [low, high], or of [low, high).
inline Status Within(const char* option, double value, double low, double high,
                     bool open_high) {
  if (value >= low && (open_high ? value < high : value <= high)) return Status::Ok();
  return InvalidArgument(std::string(option) + " is " + NumberText(value) +
                         "; it must be in [" + NumberText(low) + ", " + NumberText(high) +
                         (open_high ? ")" : "]"));
}

}  // namespace elastiquant
