#include "elastiquant/layers/fragments.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace elastiquant {
namespace {

struct Layer {
  std::vector<size_t> members;  // numbers of its parameters
  size_t elements = 0;
  bool has_matrix = false;
};

void Append(const Layer& from, Layer* to) {
  to->members.insert(to->members.end(), from.members.begin(), from.members.end());
  to->elements += from.elements;
  to->has_matrix |= from.has_matrix;
}

// The module of a parameter, with a dot in front of it: "." + "a.b" of "a.b.weight". What the
// model itself has is of module "".
std::string ModuleOf(const std::string& name) {
  const std::string dotted = "." + name;
  const std::string module = dotted.substr(0, dotted.rfind('.'));
  return module.substr(0, module.find(".parametrizations."));
}

// In the order of their first parameters.
std::vector<Layer> Modules(std::span<const ParameterShape> shapes) {
  std::vector<Layer> modules;
  std::map<std::string, size_t> places;
  for (size_t p = 0; p < shapes.size(); ++p) {
    const auto [place, is_new] = places.try_emplace(ModuleOf(shapes[p].name), modules.size());
    if (is_new) modules.emplace_back();
    Append({{p}, shapes[p].elements, shapes[p].dimensions > 1}, &modules[place->second]);
  }
  return modules;
}

// Modules without a matrix joined to those before them. The first ones wait for one that has.
std::vector<Layer> JoinedModules(std::span<const ParameterShape> shapes) {
  std::vector<Layer> joined;
  for (Layer& module : Modules(shapes)) {
    const bool joins = !joined.empty() && !(module.has_matrix && joined.back().has_matrix);
    if (joins) {
      Append(module, &joined.back());
    } else {
      joined.push_back(std::move(module));
    }
  }
  return joined;
}

}  // namespace

std::vector<std::vector<size_t>> LayersOf(std::span<const ParameterShape> shapes) {
  std::vector<std::vector<size_t>> layers;
  for (Layer& layer : JoinedModules(shapes)) layers.push_back(std::move(layer.members));
  return layers;
}

Result<std::vector<size_t>> BalancedFragments(std::span<const ParameterShape> shapes,
                                              size_t fragments) {
  std::vector<Layer> layers = JoinedModules(shapes);
  if (fragments < 1 || fragments > layers.size()) {
    return InvalidArgument("a model of " + std::to_string(layers.size()) +
                           " layers cannot be cut into " + std::to_string(fragments) +
                           " fragments");
  }
  std::ranges::stable_sort(layers, std::greater(), &Layer::elements);
  std::vector<size_t> of(shapes.size()), sizes(fragments, 0);
  for (const Layer& layer : layers) {
    const auto lightest = std::ranges::min_element(sizes);
    *lightest += layer.elements;
    for (size_t p : layer.members) of[p] = static_cast<size_t>(lightest - sizes.begin());
  }
  return of;
}

}  // namespace elastiquant
