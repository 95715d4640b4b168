#include "elastiquant/protocol/gossip/state.h"

#include <algorithm>

namespace elastiquant {

FieldVisitor KeepIn(GossipState* state, const std::string& prefix) {
  return [state, prefix](std::string_view field, std::span<float> values) {
    state->vectors[prefix + std::string(field)].assign(values.begin(), values.end());
  };
}

FieldVisitor StateReader::PutFrom(const std::string& prefix) {
  return [this, prefix](std::string_view field, std::span<float> values) {
    const std::string name = prefix + std::string(field);
    const auto found = state_.vectors.find(name);
    if (found == state_.vectors.end() || found->second.size() != values.size()) {
      missing_ = name;
      return;
    }
    std::ranges::copy(found->second, values.begin());
    ++taken_;
  };
}

Status StateReader::status() const {
  if (missing_.empty() && taken_ == state_.vectors.size()) return {};
  return InvalidArgument("the state is of another algorithm, graph, codec or model" +
                         (missing_.empty() ? "" : ": it lacks " + missing_));
}

}  // namespace elastiquant
