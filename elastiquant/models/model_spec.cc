#include "elastiquant/models/model_spec.h"

#include "elastiquant/base/number.h"
#include "elastiquant/base/split.h"

namespace elastiquant {

Result<ModelSpec> ParseModelSpec(std::string_view text) {
  const size_t colon = text.find(':');
  ModelSpec spec{.name = std::string(text.substr(0, colon)), .parameters = {}};
  if (colon == std::string_view::npos) return spec;
  for (const std::string_view item : SplitAt(text.substr(colon + 1), ',')) {
    const size_t equals = item.find('=');
    int64_t value = 0;
    if (equals == std::string_view::npos || !ParseNumber(item.substr(equals + 1), &value)) {
      return InvalidArgument("model \"" + std::string(text) + "\": \"" + std::string(item) +
                             "\" is not KEY=NUMBER");
    }
    const std::string key(item.substr(0, equals));
    if (!spec.parameters.emplace(key, value).second) {
      return InvalidArgument("model \"" + std::string(text) + "\": \"" + key +
                             "\" is given twice");
    }
  }
  return spec;
}

Result<std::map<std::string, int64_t>> WithDefaults(const ModelSpec& spec,
                                                    std::map<std::string, int64_t> defaults) {
  std::string known;
  for (const auto& [key, unused] : defaults) known += (known.empty() ? "" : ", ") + key;
  for (const auto& [key, value] : spec.parameters) {
    const auto found = defaults.find(key);
    if (found == defaults.end()) {
      return InvalidArgument("model " + spec.name + " has no parameter \"" + key + "\"; " +
                             (known.empty() ? "it has none" : "it has " + known));
    }
    if (value < 1) {
      return InvalidArgument("model " + spec.name + ": " + key + " must be at least 1, not " +
                             std::to_string(value));
    }
    found->second = value;
  }
  return defaults;
}

}  // namespace elastiquant
