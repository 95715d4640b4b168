#include "elastiquant/ddp/layout_section.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace elastiquant {

std::vector<uint8_t> LayoutSection(const DdpLayout& layout,
                                   std::span<const DdpParameter> parameters) {
  auto names = nlohmann::json::array();
  for (const std::vector<size_t>& bucket : layout) {
    auto& own = names.emplace_back(nlohmann::json::array());
    for (const size_t p : bucket) own.push_back(parameters[p].shape.name);
  }
  const std::string text = names.dump();
  return {text.begin(), text.end()};
}

Result<DdpLayout> ReadLayoutSection(std::span<const uint8_t> section,
                                    std::span<const DdpParameter> parameters) {
  const auto json = nlohmann::json::parse(section.begin(), section.end(), nullptr, false);
  if (!json.is_array()) return CorruptData("section layout is no list of buckets");
  DdpLayout layout;
  for (const nlohmann::json& bucket : json) {
    layout.emplace_back();
    for (const nlohmann::json& name : bucket) {
      const auto known = std::ranges::find_if(
          parameters, [&](const DdpParameter& p) { return name == p.shape.name; });
      if (known == parameters.end()) {
        return CorruptData("section layout names " + name.dump() +
                           ", which is no parameter of the model");
      }
      layout.back().push_back(static_cast<size_t>(known - parameters.begin()));
    }
  }
  return layout;
}

}  // namespace elastiquant
