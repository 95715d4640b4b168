// Parses and prints the numbers of spec strings.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

namespace elastiquant {

// Sets *value to the number that `text` stands for. Returns false unless all of `text` is a
// number that T can hold.
template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end;
}

// Returns the shortest text that reads back as the same number.
template <typename Real>
std::string NumberText(Real value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

}  // namespace elastiquant
