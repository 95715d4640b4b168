#include "elastiquant/cli/gossip_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/graph/mixing.h"
#include "elastiquant/protocol/gossip/gossip.h"
#include "elastiquant/protocol/gossip/step_search.h"
#include "elastiquant/theory/quadratic_rate.h"

namespace elastiquant::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kElements = 512;
constexpr int kRounds = 2000;
// The part of the way, of distances from where they end, over which a rate is measured. At the
// beginning several eigenvectors count; at the end only the rounding of floats does.
constexpr double kFrom = 1e-2, kTo = 1e-5;
constexpr int kSwing = 100;  // rounds after which a distance does not come back

struct Contestant {
  const char* name;
  GossipKind kind;
  theory::Recursion recursion;
  int64_t delay = 0;
};
constexpr Contestant kContestants[] = {
    {"dpsgd", GossipKind::kDpsgd, theory::Recursion::kPlain},
    {"d2", GossipKind::kD2, theory::Recursion::kD2},
    {"gradient-tracking", GossipKind::kTracking, theory::Recursion::kTracking},
    {"choco", GossipKind::kChoco, theory::Recursion::kReplicas},
    {"choco:delay=1", GossipKind::kChoco, theory::Recursion::kLate, 1},
};

// A problem's workers, in step with each other.
struct Quadratics {
  std::vector<std::unique_ptr<GossipNode>> nodes;
  std::vector<std::vector<float>> minima;  // their mean is 0

  // One round. False if weights have left the range of what can be encoded.
  Result<bool> Round(double curvature) {
    struct Letter {
      int from, to;
      std::vector<uint8_t> bytes;
    };
    std::vector<Letter> mail;
    std::vector<float> moved(kElements);
    for (size_t w = 0; w < nodes.size(); ++w) {
      const auto post = [&](const GossipSends& sends) {
        for (const GossipSend& s : sends) {
          mail.push_back({static_cast<int>(w), s.to, {s.bytes.begin(), s.bytes.end()}});
        }
      };
      EQ_ASSIGN_OR_RETURN(const GossipSends early, nodes[w]->OnRound());
      post(early);
      const std::span<const float> x = nodes[w]->weights();
      for (size_t e = 0; e < kElements; ++e) {
        moved[e] = static_cast<float>(curvature) * (minima[w][e] - x[e]);
        if (!std::isfinite(moved[e])) return false;
      }
      const Result<GossipSends> sends = nodes[w]->OnMoved(moved);
      if (sends.status().code() == StatusCode::kNonFinite ||
          sends.status().code() == StatusCode::kOutOfRange) {
        return false;
      }
      EQ_RETURN_IF_ERROR(sends.status());
      post(*sends);
    }
    for (const Letter& letter : mail) {
      const auto to = static_cast<size_t>(letter.to);
      EQ_RETURN_IF_ERROR(nodes[to]->OnMessage(letter.from, letter.bytes).status());
    }
    return true;
  }

  // What each differs from the mean by, one worker behind the other.
  std::vector<double> Differences() const {
    std::vector<double> all(nodes.size() * kElements);
    for (size_t e = 0; e < kElements; ++e) {
      double mean = 0;
      for (const auto& node : nodes) mean += static_cast<double>(node->weights()[e]);
      mean /= static_cast<double>(nodes.size());
      for (size_t w = 0; w < nodes.size(); ++w) {
        all[w * kElements + e] = static_cast<double>(nodes[w]->weights()[e]) - mean;
      }
    }
    return all;
  }
};

double Distance(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0;
  for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares);
}

// Minima that have nothing to do with each other, but for their mean of 0.
std::vector<std::vector<float>> Minima(size_t workers, uint64_t seed) {
  std::vector<std::vector<float>> minima(workers, std::vector<float>(kElements));
  for (size_t e = 0; e < kElements; ++e) {
    float mean = 0;
    for (size_t w = 0; w < workers; ++w) {
      const LaneKeys keys = MakeLaneKeys(DeriveKey(seed, 0, w, 1));
      float sum = 0;  // of uniform numbers: near enough to a Gaussian
      for (uint32_t k = 0; k < 8; ++k) {
        sum += UniformFloat(RandomBits(keys, static_cast<uint32_t>(8 * e) + k)) - .5f;
      }
      minima[w][e] = sum;
      mean += sum / static_cast<float>(workers);
    }
    for (size_t w = 0; w < workers; ++w) minima[w][e] -= mean;
  }
  return minima;
}

struct Measured {
  std::optional<double> rate = {};
  double left = 0;  // as a part of the minima's differences
};

Result<Quadratics> MakeQuadratics(const GossipOptions& options) {
  Quadratics problem;
  problem.minima = Minima(options.graph->nodes(), options.seed);
  for (size_t w = 0; w < options.graph->nodes(); ++w) {
    GossipOptions own = options;
    own.rank = static_cast<int>(w);
    EQ_ASSIGN_OR_RETURN(auto node, GossipNode::Make(own, std::vector<float>(kElements)));
    problem.nodes.push_back(std::move(node));
  }
  return problem;
}

// How fast the workers come to the end that they are known to come to: between the last rounds
// in which they are as far from it as kFrom and kTo, because distances may swing.
Result<std::optional<double>> RateTo(const std::vector<double>& end,
                                     const GossipOptions& options, double curvature) {
  EQ_ASSIGN_OR_RETURN(Quadratics problem, MakeQuadratics(options));
  double whole = 0;
  int since = 0, until = 0;
  for (int round = 0; round < std::min(kRounds, until + kSwing); ++round) {
    EQ_RETURN_IF_ERROR(problem.Round(curvature).status());
    const double distance = Distance(problem.Differences(), end);
    if (round == 0) whole = distance;
    if (distance > kFrom * whole) since = round;
    if (distance > kTo * whole) until = round;
  }
  if (until == since || until + kSwing > kRounds) return std::optional<double>();
  return std::optional(std::pow(kTo / kFrom, 1.0 / (until - since)));
}

Result<Measured> Run(const GossipOptions& options, double curvature) {
  EQ_ASSIGN_OR_RETURN(Quadratics problem, MakeQuadratics(options));
  for (int round = 0; round < kRounds; ++round) {
    EQ_ASSIGN_OR_RETURN(const bool goes_on, problem.Round(curvature));
    if (!goes_on) return Measured{};
  }
  std::vector<double> minima;
  for (const auto& minimum : problem.minima) {
    minima.insert(minima.end(), minimum.begin(), minimum.end());
  }
  const std::vector<double> end = problem.Differences(), none(end.size());
  Measured measured{.left = Distance(end, none) / Distance(minima, none)};
  EQ_ASSIGN_OR_RETURN(measured.rate, RateTo(end, options, curvature));
  return measured;
}

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

bool HasStep(const Contestant& c) { return c.kind == GossipKind::kChoco; }

Result<double> StepOf(GossipOptions options, const std::string& codec) {
  options.codec = codec.empty() ? "fp32" : codec;
  EQ_ASSIGN_OR_RETURN(const StepSearch search, SearchGossipStep(options));
  return search.best;
}

Result<Json> RowOf(const Contestant& contestant, const GossipRateOptions& o,
                   const std::shared_ptr<const Graph>& graph,
                   const std::vector<double>& eigenvalues) {
  Json row = {{"algorithm", contestant.name}};
  GossipOptions options{.kind = contestant.kind, .graph = graph, .elements = kElements};
  options.seed = o.seed;
  options.delay = contestant.delay;
  const Status objection = GossipNode::Check(options);
  if (!objection.ok()) {
    row["refused"] = objection.message();
    return row;
  }
  if (HasStep(contestant)) {
    EQ_ASSIGN_OR_RETURN(options.step, StepOf(options, o.codec));
    row["step"] = options.step;
  }
  const theory::QuadraticOutcome outcome =
      theory::OnQuadratics(contestant.recursion, eigenvalues, o.curvature, options.step);
  EQ_ASSIGN_OR_RETURN(const Measured measured, Run(options, o.curvature));
  row["rate"] = outcome.rate;
  row["measured_rate"] = OrNull(measured.rate);
  row["left"] = outcome.left;
  row["measured_left"] = measured.left;
  if (o.codec.empty()) return row;
  options.codec = o.codec;
  EQ_ASSIGN_OR_RETURN(const Measured coded, Run(options, o.curvature));
  row["codec_rate"] = OrNull(coded.rate);
  return row;
}

std::string Cell(const Json& row, const char* name) {
  if (!row.contains(name)) return "";
  return row[name].is_null() ? "-" : fmt::format("{:.4f}", row[name].get<double>());
}

}  // namespace

Result<Json> GossipRates(const GossipRateOptions& o) {
  EQ_ASSIGN_OR_RETURN(const auto graph, Graph::Parse(o.graph, o.nodes, o.seed));
  if (!graph->is_static() || !graph->is_symmetric()) {
    return InvalidArgument("rates are known for symmetric graphs that do not change, which " +
                           graph->spec() + " is not: a ring, a torus, a star, ...");
  }
  if (!o.codec.empty()) EQ_RETURN_IF_ERROR(MakeCodec(o.codec).status());
  const std::vector<double> eigenvalues = SymmetricEigenvalues(graph->AtFirst());
  Json rows = Json::array();
  for (const Contestant& contestant : kContestants) {
    EQ_ASSIGN_OR_RETURN(Json row, RowOf(contestant, o, graph, eigenvalues));
    rows.push_back(std::move(row));
  }
  return Json{{"graph", graph->spec()},
              {"nodes", graph->nodes()},
              {"curvature", o.curvature},
              {"codec", o.codec.empty() ? Json(nullptr) : Json(o.codec)},
              {"rows", std::move(rows)}};
}

void PrintGossipRates(const Json& rates) {
  fmt::print("{} of {} nodes, on quadratics whose minima are unrelated, eta h = {}\n\n",
             rates["graph"].get<std::string>(), rates["nodes"].get<size_t>(),
             rates["curvature"].get<double>());
  const std::string codec =
      rates["codec"].is_null() ? "" : "under " + rates["codec"].get<std::string>();
  fmt::print(
      "{:<18} {:>5}   differences are multiplied by       left in the end, of minima's\n", "",
      "");
  fmt::print("{:<18} {:>5}   {:>8} {:>9} {:>12}     {:>8} {:>9}\n", "", "step", "theory",
             "measured", codec.empty() ? "" : "with codec", "theory", "measured");
  for (const Json& row : rates["rows"]) {
    const auto name = row["algorithm"].get<std::string>();
    if (row.contains("refused")) {
      fmt::print("{:<18} refused: {}\n", name, row["refused"].get<std::string>());
      continue;
    }
    const std::string step =
        row.contains("step") ? fmt::format("{:g}", row["step"].get<double>()) : "";
    fmt::print("{:<18} {:>5}   {:>8} {:>9} {:>12}     {:>8} {:>9}\n", name, step,
               Cell(row, "rate"), Cell(row, "measured_rate"), Cell(row, "codec_rate"),
               Cell(row, "left"), Cell(row, "measured_left"));
  }
  if (!codec.empty()) fmt::print("\nThe codec's column is {}.\n", codec);
}

}  // namespace elastiquant::cli
