// What was measured on small problems (rates/), in words for `elastiquant theory`.
#pragma once

#include <nlohmann/json.hpp>

namespace elastiquant::cli {

// Print what rates::GossipRates and rates::LazyUploads return to stdout.
void PrintGossipRates(const nlohmann::ordered_json& rates);
void PrintLazyUploads(const nlohmann::ordered_json& found);

}  // namespace elastiquant::cli
