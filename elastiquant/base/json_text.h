// JSON as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace elastiquant {

// Returns the value, of nlohmann::json or ordered_json, as text, on one line, or with `indent`
// spaces for each level if that is not -1. Bytes that are not UTF-8, which names of files may
// have, become U+FFFD.
template <typename Json = nlohmann::json>
std::string JsonText(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace elastiquant
