#include "elastiquant/graph/edge_file.h"

#include <cmath>
#include <fstream>
#include <sstream>
#include <vector>

#include "elastiquant/base/number.h"
#include "elastiquant/graph/random_graphs.h"

namespace elastiquant {
namespace {

struct Edge {
  size_t a = 0, b = 0;
  double weight = 0;  // 0: none was given
};

// Nothing but an empty line or a comment has no words.
std::vector<std::string> WordsOf(const std::string& line) {
  std::istringstream stream(line.substr(0, line.find('#')));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Result<Edge> ParseEdge(const std::vector<std::string>& words, size_t workers) {
  Edge edge;
  const bool has_weight = words.size() == 3;
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

std::vector<bool> Transposed(const std::vector<bool>& links, size_t workers) {
  std::vector<bool> other(links.size());
  for (size_t i = 0; i < workers; ++i) {
    for (size_t j = 0; j < workers; ++j) other[j * workers + i] = links[i * workers + j];
  }
  return other;
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

}  // namespace

Result<Mixing> ParseEdges(const std::string& text, size_t workers, const std::string& name) {
  std::istringstream lines(text);
  std::vector<Edge> edges;
  std::vector<bool> linked(workers * workers, false);
  size_t number = 0, weights = 0, directed = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = name + ", line " + std::to_string(++number) + ": ";
    std::vector<std::string> words = WordsOf(line);
    if (words.empty()) continue;
    const bool is_directed = words.size() == 3 && words[1] == ">";
    if (is_directed) words.erase(words.begin() + 1);
    directed += is_directed ? 1 : 0;
    const Result<Edge> edge = ParseEdge(words, workers);
    if (!edge.ok()) return InvalidArgument(where + edge.status().message());
    if (linked[edge->a * workers + edge->b]) {
      return InvalidArgument(where + "this edge has stood before");
    }
    linked[edge->a * workers + edge->b] = true;  // for now, a row for each that gives
    if (!is_directed) linked[edge->b * workers + edge->a] = true;
    weights += edge->weight > 0 ? 1 : 0;
    edges.push_back(*edge);
  }
  if (directed > 0 && directed < edges.size()) {
    return InvalidArgument(name + ": either all edges are directed, as in '0 > 1', or none");
  }
  const std::vector<bool> gives = Transposed(linked, workers);
  if (!IsConnected(workers, linked) || !IsConnected(workers, gives)) {
    return InvalidArgument(name + ": not all of the " + std::to_string(workers) +
                           " workers can be reached along its edges");
  }
  if (directed > 0) return EqualParts(gives, workers);
  if (weights == 0) return MetropolisMixing(workers, linked);
  if (weights < edges.size()) {
    return InvalidArgument(name + ": either all edges have a weight, or none");
  }
  Result<Mixing> mixing = Weighted(edges, workers);
  if (!mixing.ok()) return InvalidArgument(name + ": " + mixing.status().message());
  return mixing;
}

Result<Mixing> ReadEdgeFile(const std::string& path, size_t workers) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) return NotFound("cannot read the graph '" + path + "'");
  return ParseEdges(text.str(), workers, path);
}

}  // namespace elastiquant
