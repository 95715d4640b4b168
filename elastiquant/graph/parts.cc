#include "elastiquant/graph/parts.h"

#include <algorithm>
#include <functional>

namespace elastiquant {
namespace {

using NextOf = std::function<const std::vector<int>&(int)>;

// By node: whether it can be reached from `from` through nodes that are there.
std::vector<bool> ReachedFrom(int from, const std::vector<bool>& is_there, const NextOf& next) {
  std::vector<bool> reached(is_there.size(), false);
  reached[static_cast<size_t>(from)] = true;
  std::vector<int> open = {from};
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    for (const int other : next(node)) {
      const auto o = static_cast<size_t>(other);
      if (!is_there[o] || reached[o]) continue;
      reached[o] = true;
      open.push_back(other);
    }
  }
  return reached;
}

}  // namespace

GraphParts PartsOf(const Graph& graph, std::vector<int> left) {
  std::ranges::sort(left);
  std::vector<bool> is_there(graph.nodes(), false);
  for (const int node : left) is_there[static_cast<size_t>(node)] = true;
  const NextOf receivers = [&](int i) -> const std::vector<int>& { return graph.receivers(i); };
  const NextOf senders = [&](int i) -> const std::vector<int>& { return graph.senders(i); };
  GraphParts parts;
  std::vector<bool> is_placed(graph.nodes(), false);
  for (const int first : left) {
    if (is_placed[static_cast<size_t>(first)]) continue;
    const std::vector<bool> there = ReachedFrom(first, is_there, receivers);
    const std::vector<bool> back = ReachedFrom(first, is_there, senders);
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
