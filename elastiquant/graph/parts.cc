#include "elastiquant/graph/parts.h"

#include <algorithm>

#include "elastiquant/graph/random_graphs.h"

namespace elastiquant {
namespace {

// As ReachedFrom has them, between those workers that are left.
std::vector<bool> LinksAmong(const Graph& graph, const std::vector<int>& left) {
  const size_t nodes = graph.nodes();
  std::vector<bool> is_there(nodes, false), linked(nodes * nodes, false);
  for (const int node : left) is_there[static_cast<size_t>(node)] = true;
  for (const int from : left) {
    for (const int to : graph.receivers(from)) {
      const auto row = static_cast<size_t>(from), column = static_cast<size_t>(to);
      if (is_there[column]) linked[row * nodes + column] = true;
    }
  }
  return linked;
}

}  // namespace

GraphParts PartsOf(const Graph& graph, std::vector<int> left) {
  std::ranges::sort(left);
  const size_t nodes = graph.nodes();
  const std::vector<bool> linked = LinksAmong(graph, left),
                          back_links = Transposed(linked, nodes);
  GraphParts parts;
  std::vector<bool> is_placed(nodes, false);
  for (const int first : left) {
    if (is_placed[static_cast<size_t>(first)]) continue;
    const auto from = static_cast<size_t>(first);
    const std::vector<bool> there = ReachedFrom(from, nodes, linked);
    const std::vector<bool> back = ReachedFrom(from, nodes, back_links);
    parts.emplace_back();
    for (const int node : left) {
      const auto n = static_cast<size_t>(node);
      if (!there[n] || !back[n]) continue;
      parts.back().push_back(node);
      is_placed[n] = true;
    }
  }
  return parts;
}

std::optional<std::pair<int, int>> EdgeBetween(const Graph& graph, const GraphParts& parts) {
  std::vector<size_t> part_of(graph.nodes(), parts.size());  // of a worker that is lost
  for (size_t p = 0; p < parts.size(); ++p) {
    for (const int node : parts[p]) part_of[static_cast<size_t>(node)] = p;
  }
  for (const std::vector<int>& part : parts) {
    for (const int from : part) {
      for (const int to : graph.receivers(from)) {
        const size_t p = part_of[static_cast<size_t>(to)];
        if (p < parts.size() && p != part_of[static_cast<size_t>(from)]) return {{from, to}};
      }
    }
  }
  return std::nullopt;
}

std::string Describe(const GraphParts& parts) {
  std::string words;
  for (const std::vector<int>& part : parts) {
    if (!words.empty()) words += " | ";
    for (size_t n = 0; n < part.size(); ++n) {
      words += (n > 0 ? ", " : "") + std::to_string(part[n]);
    }
  }
  return words;
}

}  // namespace elastiquant
