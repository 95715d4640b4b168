// Whether a value is among others, which the standard library offers from C++23 on.
#pragma once

#include <algorithm>
#include <ranges>

namespace elastiquant {

template <std::ranges::input_range Values, class Value>
bool Contains(const Values& values, const Value& value) {
  return std::ranges::find(values, value) != std::ranges::end(values);
}

}  // namespace elastiquant
