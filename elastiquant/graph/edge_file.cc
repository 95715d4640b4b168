#include "elastiquant/graph/edge_file.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <vector>

#include "elastiquant/base/number.h"
#include "elastiquant/base/text_file.h"
#include "elastiquant/graph/random_graphs.h"

namespace elastiquant {
namespace {

struct Edge {
  size_t a = 0, b = 0;
  double weight = 0;  // 0: none was given
  bool is_directed = false;
  size_t line = 0;  // that it stands in, from 1
};

bool IsDirected(const Edge& edge) { return edge.is_directed; }
bool HasWeight(const Edge& edge) { return edge.weight > 0; }

Result<Edge> ParseEdge(std::vector<std::string> words, size_t workers) {
  Edge edge;
  edge.is_directed = words.size() > 1 && words[1] == ">";
  if (edge.is_directed) words.erase(words.begin() + 1);
  const bool has_weight = words.size() == 3;
  if (edge.is_directed && has_weight) {
    return InvalidArgument(
        "a directed edge has no weight: each worker gives equal parts to itself and to all "
        "whom it gives to");
  }
  if (words.size() < 2 || words.size() > 3 || !ParseNumber(words[0], &edge.a) ||
      !ParseNumber(words[1], &edge.b) || edge.a >= workers || edge.b >= workers ||
      edge.a == edge.b) {
    return InvalidArgument("an edge is two different numbers of workers below " +
                           std::to_string(workers) + ", and perhaps a weight");
  }
  if (has_weight &&
      (!ParseNumber(words[2], &edge.weight) || !(edge.weight > 0) || !(edge.weight < 1))) {
    return InvalidArgument("a weight is a number above 0 and below 1");
  }
  return edge;
}

// `gives` has a row for each worker that takes.
Mixing EqualParts(const std::vector<bool>& gives, size_t workers) {
  Mixing mixing = IdentityMixing(workers);
  for (size_t j = 0; j < workers; ++j) {
    double parts = 1;
    for (size_t i = 0; i < workers; ++i) parts += gives[i * workers + j] ? 1 : 0;
    for (size_t i = 0; i < workers; ++i) {
      if (i == j || gives[i * workers + j]) mixing(i, j) = 1 / parts;
    }
  }
  return mixing;
}

Result<Mixing> Weighted(const std::vector<Edge>& edges, size_t workers) {
  Mixing mixing = IdentityMixing(workers);
  for (const Edge& e : edges) {
    mixing(e.a, e.b) = mixing(e.b, e.a) = e.weight;
    mixing(e.a, e.a) -= e.weight;
    mixing(e.b, e.b) -= e.weight;
  }
  for (size_t i = 0; i < workers; ++i) {
    // What is left of 1 after weights such as .1 may be a little below 0.
    if (std::abs(mixing(i, i)) < 1e-12) mixing(i, i) = 0;
    if (mixing(i, i) < 0) {
      return InvalidArgument("the weights of row " + std::to_string(i) + " add up to " +
                             std::to_string(1 - mixing(i, i)) + ", which is more than 1");
    }
  }
  return mixing;
}

// Names the lines of two edges of which only one has what all or none must have.
Status CheckAllOrNone(const std::vector<Edge>& edges, const std::string& name,
                      bool (*has)(const Edge&), const std::string& rule) {
  for (const Edge& edge : edges) {
    if (has(edge) == has(edges.front())) continue;
    const std::string first = std::to_string(edges.front().line);
    return InvalidArgument(std::string(name)
                               .append(", lines " + first)
                               .append(" and " + std::to_string(edge.line))
                               .append(": " + rule));
  }
  return {};
}

// Names a worker that lacks a way to worker 0 or from it, as one does if any two lack one.
// `gives` has a row for each worker that takes.
Status CheckWays(const std::vector<bool>& gives, size_t workers, const std::string& name) {
  for (const bool there : {true, false}) {
    const std::vector<bool> reached =
        ReachedFrom(0, workers, there ? Transposed(gives, workers) : gives);
    const auto missing = std::ranges::find(reached, false);
    if (missing == reached.end()) continue;
    const std::string row = std::to_string(missing - reached.begin());
    return InvalidArgument(
        name + ": not all of the " + std::to_string(workers) +
        " workers can be reached along its edges: there is no way from " +
        (there ? "worker 0 to worker " + row : "worker " + row + " to worker 0"));
  }
  return {};
}

}  // namespace

Result<Mixing> ParseEdges(const std::string& text, size_t workers, const std::string& name) {
  std::istringstream lines(text);
  std::vector<Edge> edges;
  std::vector<bool> gives(workers * workers, false);
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = name + ", line " + std::to_string(++number) + ": ";
    const std::vector<std::string> words = WordsOf(line);
    if (words.empty()) continue;
    Result<Edge> edge = ParseEdge(words, workers);
    if (!edge.ok()) return InvalidArgument(where + edge.status().message());
    if (gives[edge->b * workers + edge->a]) {
      return InvalidArgument(where + "this edge has stood before");
    }
    gives[edge->b * workers + edge->a] = true;
    if (!edge->is_directed) gives[edge->a * workers + edge->b] = true;
    edge->line = number;
    edges.push_back(*edge);
  }
  EQ_RETURN_IF_ERROR(CheckAllOrNone(edges, name, IsDirected,
                                    "either all edges are directed, as in '0 > 1', or none"));
  EQ_RETURN_IF_ERROR(
      CheckAllOrNone(edges, name, HasWeight, "either all edges have a weight, or none"));
  EQ_RETURN_IF_ERROR(CheckWays(gives, workers, name));
  const bool is_directed = !edges.empty() && edges.front().is_directed;
  if (is_directed) return EqualParts(gives, workers);
  if (edges.empty() || !HasWeight(edges.front())) return MetropolisMixing(workers, gives);
  Result<Mixing> mixing = Weighted(edges, workers);
  if (!mixing.ok()) return InvalidArgument(name + ": " + mixing.status().message());
  return mixing;
}

Result<Mixing> ReadEdgeFile(const std::string& path, size_t workers) {
  const Result<std::string> text = ReadTextFile(path);
  if (!text.ok()) return NotFound("the graph: " + text.status().message());
  return ParseEdges(*text, workers, path);
}

}  // namespace elastiquant
