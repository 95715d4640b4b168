#include "elastiquant/graph/graph.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "elastiquant/base/contains.h"
#include "elastiquant/base/number.h"
#include "elastiquant/base/random.h"
#include "elastiquant/codec/spec.h"
#include "elastiquant/graph/edge_file.h"
#include "elastiquant/graph/random_graphs.h"

namespace elastiquant {
namespace {

constexpr size_t kMostNodes = 1024;

// What a spec says beside the name.
struct GraphParameters {
  size_t rows = 0;    // of a torus; 0: near-square
  size_t degree = 3;  // of a random regular graph
  double p = .5;      // of an edge
  int lazy = 0;
};

struct GraphKind {
  std::vector<std::string> keys;  // beside "lazy"
  std::function<Result<Mixing>(size_t nodes, const GraphParameters&, uint64_t seed)> mixing;
};

Mixing Complete(size_t nodes) {
  return {nodes, std::vector<double>(nodes * nodes, 1 / static_cast<double>(nodes))};
}

Mixing Star(size_t nodes) {
  std::vector<bool> linked(nodes * nodes, false);
  for (size_t i = 1; i < nodes; ++i) linked[i] = linked[i * nodes] = true;
  return MetropolisMixing(nodes, linked);
}

Result<Mixing> Hypercube(size_t nodes) {
  if (!std::has_single_bit(nodes)) {
    return InvalidArgument("a hypercube has 2, 4, 8, ... nodes, not " + std::to_string(nodes));
  }
  std::vector<bool> linked(nodes * nodes, false);
  for (size_t i = 0; i < nodes; ++i) {
    for (size_t bit = 1; bit < nodes; bit *= 2) linked[i * nodes + (i ^ bit)] = true;
  }
  return MetropolisMixing(nodes, linked);
}

Result<Mixing> Torus(size_t nodes, size_t rows) {
  if (rows == 0) {
    rows = static_cast<size_t>(std::sqrt(static_cast<double>(nodes)));
    while (nodes % rows != 0) --rows;
  }
  if (nodes % rows != 0) {
    return InvalidArgument("a torus of " + std::to_string(nodes) + " nodes cannot have " +
                           std::to_string(rows) + " rows");
  }
  return TorusMixing(rows, nodes / rows);
}

Result<Mixing> Linked(size_t nodes, const Result<std::vector<bool>>& linked) {
  EQ_RETURN_IF_ERROR(linked.status());
  return MetropolisMixing(nodes, *linked);
}

// Those that do not change.
const std::map<std::string, GraphKind, std::less<>>& StaticKinds() {
  using P = GraphParameters;
  static const std::map<std::string, GraphKind, std::less<>> kinds = {
      {"ring", {{}, [](size_t n, const P&, uint64_t) { return RingMixing(n); }}},
      {"complete", {{}, [](size_t n, const P&, uint64_t) { return Complete(n); }}},
      {"star", {{}, [](size_t n, const P&, uint64_t) { return Star(n); }}},
      {"hypercube", {{}, [](size_t n, const P&, uint64_t) { return Hypercube(n); }}},
      {"exponential", {{}, [](size_t n, const P&, uint64_t) { return ExponentialMixing(n); }}},
      {"torus", {{"rows"}, [](size_t n, const P& p, uint64_t) { return Torus(n, p.rows); }}},
      {"random-regular",
       {{"degree"},
        [](size_t n, const P& p, uint64_t seed) {
          return Linked(n, RandomRegularLinks(n, p.degree, seed));
        }}},
      {"erdos-renyi", {{"p"}, [](size_t n, const P& p, uint64_t seed) {
                         return Linked(n, ErdosRenyiLinks(n, p.p, seed));
                       }}}};
  return kinds;
}

constexpr char kOnePeer[] = "one-peer-exponential";
constexpr char kPairs[] = "random-pairs";

Status SetParameter(const std::string& owner, const std::string& key, const std::string& text,
                    GraphParameters* p) {
  if (key == "lazy") {
    const bool good = ParseNumber(text, &p->lazy) && (p->lazy == 0 || p->lazy == 1);
    return good ? Status::Ok() : BadValueOf(owner, key, text, "0 and 1");
  }
  if (key == "p") {
    const bool good = ParseNumber(text, &p->p) && p->p > 0 && p->p <= 1;
    return good ? Status::Ok() : BadValueOf(owner, key, text, "numbers above 0, up to 1");
  }
  size_t* const count = key == "rows" ? &p->rows : &p->degree;
  const bool good = ParseNumber(text, count) && *count > 0;
  return good ? Status::Ok() : BadValueOf(owner, key, text, "whole numbers from 1 on");
}

Result<GraphParameters> ParametersOf(const SpecPart& part,
                                     const std::vector<std::string>& keys) {
  const std::string owner = "graph '" + part.name + "'";
  GraphParameters parameters;
  for (const auto& [key, value] : part.pairs) {
    if (key != "lazy" && !Contains(keys, key)) {
      std::string said = owner;
      said += " has no parameter '" + key + "'; it has lazy";
      for (const std::string& other : keys) said += ", " + other;
      return InvalidArgument(std::move(said));
    }
    EQ_RETURN_IF_ERROR(SetParameter(owner, key, value, &parameters));
  }
  return parameters;
}

std::string Listed() {
  std::string list;
  for (const std::string& name : GraphNames()) list += (list.empty() ? "" : ", ") + name;
  return list;
}

// Of what workers give each other. What each keeps is the rest of its column, whose last bit
// depends on the order of edges.
uint64_t DigestOf(const Mixing& mixing, uint64_t digest) {
  for (size_t i = 0; i < mixing.workers; ++i) {
    for (size_t j = 0; j < mixing.workers; ++j) {
      const uint64_t weight = i == j ? 0 : std::bit_cast<uint64_t>(mixing(i, j));
      digest = Mix64(digest ^ weight);
    }
  }
  return digest;
}

constexpr size_t kDigestedSteps = 8;  // of a graph that never repeats

}  // namespace

// A file's name is not a spec: it may have any characters.
bool IsEdgeFile(std::string_view spec) {
  return spec.substr(0, spec.find(':')).find_first_of("./") != std::string_view::npos;
}

const std::vector<std::string>& GraphNames() {
  static const std::vector<std::string> names = {
      "ring",        "torus",  "hypercube",      "star",        "complete",
      "exponential", kOnePeer, "random-regular", "erdos-renyi", kPairs};
  return names;
}

Graph::Graph(std::string spec, size_t nodes, size_t period, bool symmetric,
             std::function<Mixing(uint64_t)> at)
    : spec_(std::move(spec)),
      nodes_(nodes),
      period_(period),
      symmetric_(symmetric),
      at_(std::move(at)),
      first_(at_(0)) {
  balanced_ = CheckDoublyStochastic(first_).ok();
  FindPeers();
}

void Graph::FindPeers() {
  receivers_.resize(nodes_);
  senders_.resize(nodes_);
  std::vector<bool> gives(nodes_ * nodes_, period_ == 0);
  for (size_t step = 0; step < period_; ++step) {
    const Mixing mixing = at_(step);
    for (size_t e = 0; e < gives.size(); ++e) {
      if (mixing.weights[e] > 0) gives[e] = true;
    }
  }
  for (size_t i = 0; i < nodes_; ++i) {
    for (size_t j = 0; j < nodes_; ++j) {
      if (i == j || !gives[i * nodes_ + j]) continue;
      senders_[i].push_back(static_cast<int>(j));
      receivers_[j].push_back(static_cast<int>(i));
    }
  }
}

Result<Graph> Graph::Make(std::string_view text, size_t nodes, uint64_t seed) {
  if (nodes < 1 || nodes > kMostNodes) {
    return InvalidArgument("a graph has 1 to " + std::to_string(kMostNodes) + " nodes, not " +
                           std::to_string(nodes));
  }
  const std::string spec(text);
  const auto fixed = [&](Mixing mixing) {
    const bool symmetric = IsSymmetric(mixing);
    return Graph(spec, nodes, 1, symmetric,
                 [mixing = std::move(mixing)](uint64_t) { return mixing; });
  };
  if (IsEdgeFile(text)) {
    constexpr std::string_view kLazy = ":lazy=1";
    const bool lazy = text.ends_with(kLazy);
    const std::string path(text.substr(0, text.size() - (lazy ? kLazy.size() : 0)));
    EQ_ASSIGN_OR_RETURN(const Mixing mixing, ReadEdgeFile(path, nodes));
    return fixed(lazy ? LazyMixing(mixing) : mixing);
  }
  EQ_ASSIGN_OR_RETURN(const Spec parsed, ParseSpec(text));
  const SpecPart& part = parsed.codec;
  const auto kind = StaticKinds().find(part.name);
  const bool is_static = kind != StaticKinds().end();
  if (!parsed.modifiers.empty() ||
      (!is_static && part.name != kOnePeer && part.name != kPairs)) {
    return InvalidArgument("graph '" + spec + "' is not known; valid are: " + Listed() +
                           ", and files of edges, which need a dot or a slash in their name");
  }
  EQ_ASSIGN_OR_RETURN(
      const GraphParameters p,
      ParametersOf(part, is_static ? kind->second.keys : std::vector<std::string>()));
  const auto maybe_lazy = [lazy = p.lazy](const Mixing& mixing) {
    return lazy ? LazyMixing(mixing) : mixing;
  };
  if (is_static) {
    EQ_ASSIGN_OR_RETURN(const Mixing mixing, kind->second.mixing(nodes, p, seed));
    return fixed(maybe_lazy(mixing));
  }
  if (part.name == kPairs) {
    return Graph(spec, nodes, nodes < 3 ? 1 : 0, true,
                 [=](uint64_t step) { return maybe_lazy(RandomPairs(nodes, seed, step)); });
  }
  const size_t period = std::max<size_t>(1, static_cast<size_t>(std::bit_width(nodes - 1)));
  return Graph(spec, nodes, period, nodes < 3,
               [=](uint64_t step) { return maybe_lazy(OnePeerMixing(nodes, step)); });
}

Result<std::shared_ptr<const Graph>> Graph::Parse(std::string_view spec, size_t nodes,
                                                  uint64_t seed) {
  EQ_ASSIGN_OR_RETURN(Graph graph, Make(spec, nodes, seed));
  return std::make_shared<const Graph>(std::move(graph));
}

Result<std::shared_ptr<const Graph>> Graph::Of(Mixing mixing, std::string spec) {
  EQ_RETURN_IF_ERROR(CheckColumns(mixing));
  const bool symmetric = IsSymmetric(mixing);
  const size_t nodes = mixing.workers;
  Graph graph(std::move(spec), nodes, 1, symmetric,
              [mixing = std::move(mixing)](uint64_t) { return mixing; });
  return std::make_shared<const Graph>(std::move(graph));
}

MixingFactors Graph::Factors() const {
  MixingFactors factors = FactorsOf(first_);
  if (is_static() || nodes_ == 1) return factors;
  if (period_ == 0) {
    // A pair that keeps k of its own shrinks its difference by 2k - 1, which takes half of what
    // that loses in squares from |d|^2. Over all pairs the squared differences add up to
    // n |d|^2, and each two workers are a pair with the same probability.
    const auto n = static_cast<double>(nodes_);
    const double kept = first_(0, 0) < 1 ? first_(0, 0) : first_(1, 1);
    const double paired = nodes_ % 2 == 0 ? 1 / (n - 1) : 1 / n;
    const double both = 1 - (1 - (2 * kept - 1) * (2 * kept - 1)) / 2 * n * paired;
    factors.contraction = std::sqrt(std::max(0.0, both));
  } else {
    std::vector<Mixing> steps;
    steps.reserve(period_);
    for (size_t t = 0; t < period_; ++t) steps.push_back(At(t));
    const double whole = FactorsOf(ProductOf(steps)).contraction;
    // Rounding leaves some 1e-16 of what is exactly 0.
    factors.contraction = whole < 1e-9 ? 0 : std::pow(whole, 1 / static_cast<double>(period_));
  }
  factors.gap = 1 - factors.contraction;
  return factors;
}

uint64_t Graph::Digest() const {
  uint64_t digest = nodes_;
  const size_t steps = period_ > 0 ? period_ : kDigestedSteps;
  for (size_t step = 0; step < steps; ++step) digest = DigestOf(At(step), digest);
  return digest;
}

bool Graph::IsLinked(size_t i, size_t j) const {
  const auto peer = static_cast<int>(j);
  return Contains(receivers_[i], peer) || Contains(senders_[i], peer);
}

std::vector<bool> Graph::Sides() const {
  std::vector<std::optional<bool>> side(nodes_);
  side[0] = true;
  std::vector<size_t> next = {0};
  while (!next.empty()) {
    const size_t i = next.back();
    next.pop_back();
    for (size_t j = 0; j < nodes_; ++j) {
      if (!IsLinked(i, j)) continue;
      if (!side[j]) {
        side[j] = !*side[i];
        next.push_back(j);
      } else if (*side[j] == *side[i]) {
        return {};
      }
    }
  }
  std::vector<bool> sides(nodes_, false);
  for (size_t i = 0; i < nodes_; ++i) sides[i] = side[i].value_or(false);
  return sides;
}

}  // namespace elastiquant
