// Cuts text into parts.
#pragma once

#include <string_view>
#include <vector>

namespace elastiquant {

// Returns what lies between separators: one part more than there are of them.
inline std::vector<std::string_view> SplitAt(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace elastiquant
