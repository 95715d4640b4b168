// JSON as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace elastiquant {

// Returns the value as text, with so many spaces an indent; -1: on one line. In strings, bytes
// that are no UTF-8, which names of files may have, become U+FFFD.
inline std::string TextOf(const nlohmann::json& value, int indent = -1) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false,
                    nlohmann::json::error_handler_t::replace);
}

}  // namespace elastiquant
