#include "elastiquant/layers/state_identity.h"

#include <nlohmann/json.hpp>

namespace elastiquant {
namespace {

using nlohmann::json;

// JSON of another writer may have other types in these places.
std::string Text(const json& object, const char* key) {
  const auto value = object.find(key);
  if (value == object.end()) return "";
  return value->is_string() ? value->get<std::string>() : value->dump();
}

Status Differs(const std::string& how) {
  return CorruptData("the state is not this worker's: " + how +
                     ". Load what this worker saved in this run, or go on without: what was "
                     "held back is lost then, and no more");
}

Status CheckLayers(const json& theirs, const StateIdentity& mine) {
  for (const StateIdentity::Layer& layer : mine.layers) {
    const auto known = theirs.find(layer.name);
    if (known == theirs.end()) return Differs("it has no parameter '" + layer.name + "'");
    const std::string elements = Text(*known, "elements"), codec = Text(*known, "codec");
    if (elements != std::to_string(layer.elements)) {
      return Differs("parameter '" + layer.name + "' had " + elements + " values and has " +
                     std::to_string(layer.elements));
    }
    if (codec != layer.codec) {
      return Differs("the codec of '" + layer.name + "' was '" + codec + "' and is '" +
                     layer.codec + "'");
    }
    // Earlier versions did not tell the order.
    const std::string order = Text(*known, "order");
    if (!order.empty() && !layer.order.empty() && order != layer.order) {
      return Differs("the dimensions of '" + layer.name + "' lay in memory in the order " +
                     order + ", and lie in the order " + layer.order +
                     ": bring the model into the memory format that it had (channels_last or "
                     "contiguous_format) before it is wrapped");
    }
  }
  if (theirs.size() == mine.layers.size()) return Status::Ok();
  json others = theirs;
  for (const StateIdentity::Layer& layer : mine.layers) others.erase(layer.name);
  return Differs("it has a parameter '" + others.begin().key() +
                 "', which the model has not, or does not train");
}

}  // namespace

StateIdentity MakeStateIdentity(int rank, int world_size,
                                std::span<const ParameterShape> shapes,
                                std::span<const std::string> specs) {
  StateIdentity identity{.rank = rank, .world_size = world_size, .layers = {}};
  for (size_t p = 0; p < shapes.size(); ++p) {
    identity.layers.push_back(
        {.name = shapes[p].name, .elements = shapes[p].elements, .codec = specs[p]});
  }
  return identity;
}

std::vector<uint8_t> IdentitySection(const StateIdentity& identity) {
  json layers = json::object();
  for (const auto& [name, elements, codec, order] : identity.layers) {
    layers[name] = {{"elements", elements}, {"codec", codec}};
    if (!order.empty()) layers[name]["order"] = order;
  }
  const std::string text = json({{"rank", identity.rank},
                                 {"world_size", identity.world_size},
                                 {"parameters", std::move(layers)}})
                               .dump();
  return {text.begin(), text.end()};
}

Status CheckIdentity(std::span<const uint8_t> section, const StateIdentity& mine) {
  const json theirs = json::parse(section.begin(), section.end(), nullptr, false);
  if (!theirs.is_object() || !theirs.contains("parameters") ||
      !theirs["parameters"].is_object()) {
    return CorruptData("section identity does not say whose state it is");
  }
  // A state of other workers is not of this rank either, whatever its number.
  const std::string rank = Text(theirs, "rank"), world = Text(theirs, "world_size");
  if (world != std::to_string(mine.world_size)) {
    return Differs("it was saved by one of " + world + " workers, and there are " +
                   std::to_string(mine.world_size));
  }
  if (rank != std::to_string(mine.rank)) {
    return Differs("it was saved by worker " + rank + ", and this is worker " +
                   std::to_string(mine.rank));
  }
  return CheckLayers(theirs["parameters"], mine);
}

Status TakeIdentity(const StateIdentity& mine, Sections* sections) {
  const auto section = sections->extract(kIdentitySection);
  if (!section.empty()) return CheckIdentity(section.mapped(), mine);
  return CorruptData("section identity is missing: nothing tells whose state it is");
}

}  // namespace elastiquant
