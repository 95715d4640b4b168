// What is left of a graph when some of its workers are lost.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/graph/graph.h"

namespace elastiquant {

using GraphParts = std::vector<std::vector<int>>;

// Returns the parts into which the graph falls when only the workers of `left` are there: in a
// part each one reaches each other one along the edges of any steps, and no other worker in
// both directions. Ascending, and in the order of their first workers. A graph that is whole
// has one.
GraphParts PartsOf(const Graph& graph, std::vector<int> left);

// Returns an edge that leads from one part to another, as the worker that gives and the one
// that takes: no way leads back. There is none on a graph whose edges lead both ways.
std::optional<std::pair<int, int>> EdgeBetween(const Graph& graph, const GraphParts& parts);

// Returns the parts in words, such as "0, 1 | 3": here 0 and 1 reach each other, and 3 nobody.
std::string Describe(const GraphParts& parts);

}  // namespace elastiquant
