#include "elastiquant/layers/gossip_sections.h"

#include <span>
#include <string>
#include <string_view>

namespace elastiquant {
namespace {

// The package tells the types of sections by how their names begin
// (python/elastiquant/_state.py).
constexpr std::string_view kVectors = "memory/gossip/";
constexpr std::string_view kCounts = "step/gossip/";
constexpr char kRound[] = "step/round";
constexpr char kWeight[] = "units/push-sum";

}  // namespace

Sections SectionsOfGossip(const GossipState& state) {
  Sections sections;
  for (const auto& [name, values] : state.vectors) {
    sections[std::string(kVectors) + name] = BytesOf(std::span<const float>(values));
  }
  for (const auto& [name, count] : state.counts) {
    sections[std::string(kCounts) + name] = SectionOf(count);
  }
  sections[kRound] = SectionOf(state.round);
  sections[kWeight] = SectionOf(state.weight);
  return sections;
}

Result<GossipState> ReadGossip(const Sections& sections) {
  GossipState state;
  EQ_ASSIGN_OR_RETURN(state.round, ValueIn<uint64_t>(sections, kRound));
  EQ_ASSIGN_OR_RETURN(state.weight, ValueIn<double>(sections, kWeight));
  for (const auto& [name, bytes] : sections) {
    if (name.starts_with(kVectors)) {
      EQ_ASSIGN_OR_RETURN(state.vectors[name.substr(kVectors.size())],
                          ValuesIn<float>(sections, name));
    } else if (name.starts_with(kCounts)) {
      EQ_ASSIGN_OR_RETURN(state.counts[name.substr(kCounts.size())],
                          ValueIn<uint64_t>(sections, name));
    } else if (name != kRound && name != kWeight) {
      return CorruptData("section " + name + " is unknown");
    }
  }
  return state;
}

}  // namespace elastiquant
