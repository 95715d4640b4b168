// `graph`: the weights of a graph without a centre, and what they mean for the algorithms.
#include "elastiquant/graph/graph.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "elastiquant/base/json_number.h"
#include "elastiquant/base/json_text.h"
#include "elastiquant/cli/command.h"
#include "elastiquant/protocol/gossip/doubt.h"
#include "elastiquant/protocol/gossip/gossip.h"
#include "elastiquant/protocol/gossip/step_search.h"
#include "elastiquant/theory/decentralised_rate.h"
#include "elastiquant/theory/error_feedback.h"

namespace elastiquant::cli {
namespace {

using nlohmann::ordered_json;

struct GraphOptions {
  std::string graph = "ring";
  size_t nodes = 8;
  uint64_t seed = 1;
  std::string codec;
  int64_t delay = 0;
  bool json = false;
};

constexpr size_t kShown = 16;  // the most nodes whose weights are printed

// Why an algorithm cannot run on the graph, or an empty text.
std::string Objection(const std::shared_ptr<const Graph>& graph, GossipKind kind) {
  return GossipNode::Check({.kind = kind, .graph = graph}).message();
}

ordered_json WeightsOf(const Mixing& mixing) {
  ordered_json rows = ordered_json::array();
  for (size_t i = 0; i < mixing.workers; ++i) {
    ordered_json row = ordered_json::array();
    for (size_t j = 0; j < mixing.workers; ++j) row.push_back(mixing(i, j));
    rows.push_back(std::move(row));
  }
  return rows;
}

// The step of CHOCO by the theorem, for a codec with a bound that holds for all vectors of a
// model's size. The theorem is about symmetric graphs that do not change.
std::optional<double> TheoryStep(const Codec& codec, const Graph& graph) {
  if (!graph.is_static() || !graph.is_symmetric()) return std::nullopt;
  constexpr size_t kModel = 1 << 20;
  const std::optional<double> bound =
      codec.NmseBound(codec.granule() > 0 ? codec.granule() : kModel);
  if (!bound) return std::nullopt;
  const bool unbiased = codec.codec_class() == CodecClass::kUnbiased;
  const double delta = unbiased ? theory::ContractionOfUnbiased(*bound) : 1 - *bound;
  return delta > 0 ? std::optional(theory::ChocoStep(graph.Factors(), delta)) : std::nullopt;
}

Result<ordered_json> StepsOf(const GraphOptions& o, const std::shared_ptr<const Graph>& graph) {
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(o.codec));
  GossipOptions options{.graph = graph};
  options.codec = o.codec;
  options.delay = o.delay;
  options.seed = o.seed;
  EQ_ASSIGN_OR_RETURN(const StepSearch search, SearchGossipStep(options));
  ordered_json trials = ordered_json::array();
  for (const StepTrial& trial : search.trials) {
    // JSON has no infinity, which stands for weights that could not be encoded any more.
    trials.push_back({{"step", trial.step}, {"contraction", NumberOrNull(trial.contraction)}});
  }
  ordered_json steps = {{"codec", o.codec}, {"best", search.best}, {"trials", trials}};
  steps["theory"] = NumberOrNull(TheoryStep(*codec, *graph));
  return steps;
}

// By algorithm, why it may diverge under the codec, of those that run on the graph.
ordered_json DoubtsOf(const GraphOptions& o, const std::shared_ptr<const Graph>& graph) {
  ordered_json doubts = ordered_json::object();
  for (const auto& [name, kind] : GossipKinds()) {
    if (!Objection(graph, kind).empty()) continue;
    const GossipOptions options{.kind = kind, .graph = graph, .codec = o.codec, .seed = o.seed};
    const std::string doubt = DoubtAbout(options);
    if (!doubt.empty()) doubts[std::string(name)] = doubt;
  }
  return doubts;
}

Result<ordered_json> Describe(const GraphOptions& o) {
  EQ_ASSIGN_OR_RETURN(const auto graph, Graph::Parse(o.graph, o.nodes, o.seed));
  const MixingFactors factors = graph->Factors();
  ordered_json told = {{"graph", graph->spec()},
                       {"nodes", graph->nodes()},
                       {"period", graph->period()},
                       {"symmetric", graph->is_symmetric()},
                       {"gap", factors.gap},
                       {"contraction", factors.contraction},
                       {"lambda_min", factors.least_eigenvalue}};
  for (const auto& [name, kind] : GossipKinds()) {
    told["algorithms"][std::string(name)] = Objection(graph, kind);
  }
  if (!o.codec.empty()) {
    told["doubts"] = DoubtsOf(o, graph);
    EQ_ASSIGN_OR_RETURN(told["gossip_step"], StepsOf(o, graph));
  }
  told["weights"] = WeightsOf(graph->AtFirst());
  return told;
}

void PrintWeights(const ordered_json& told) {
  if (told["nodes"] > kShown) return;
  fmt::print("\nweights{}: row i has what worker i takes from each\n",
             told["period"] == 1 ? "" : " of the first step");
  for (const auto& row : told["weights"]) {
    for (const double weight : row) {
      fmt::print("{:>7}", weight == 0 ? "." : fmt::format("{:.4f}", weight));
    }
    fmt::print("\n");
  }
}

void PrintSteps(const ordered_json& steps) {
  fmt::print("\ngossip step under {}, as a search finds it: {}\n",
             steps["codec"].get<std::string>(), steps["best"].get<double>());
  fmt::print("{:>6}  {}\n", "step", "squared differences are multiplied by, in a round");
  for (const auto& trial : steps["trials"]) {
    const auto& contraction = trial["contraction"];
    fmt::print("{:>6}  {}\n", trial["step"].get<double>(),
               contraction.is_null() ? "(they grow without limit)"
                                     : fmt::format("{:.4f}", contraction.get<double>()));
  }
  if (steps["theory"].is_null()) return;
  fmt::print("CHOCO's theorem allows {:.3g}, whatever is sent.\n",
             steps["theory"].get<double>());
}

void Print(const ordered_json& told) {
  const double gap = told["gap"], contraction = told["contraction"];
  fmt::print("{} of {} nodes", told["graph"].get<std::string>(), told["nodes"].get<size_t>());
  if (told["period"] == 0) {
    fmt::print(", drawn anew in each step\n");
  } else if (told["period"] > 1) {
    fmt::print(", which repeats after {} steps\n", told["period"].get<size_t>());
  } else {
    fmt::print("\n");
  }
  fmt::print("spectral gap {:.4g}: a round multiplies differences by {:.4g}", gap, contraction);
  if (contraction > 0 && contraction < 1) {
    const double rounds = std::max(1.0, std::ceil(std::log(.5) / std::log(contraction)));
    fmt::print(", and {:.0f} {} them\n", rounds, rounds == 1 ? "halves" : "halve");
  } else {
    fmt::print("{}\n", contraction == 0 && told["period"] > 1
                           ? ", and a whole period leaves none"
                           : "");
  }
  fmt::print("least eigenvalue {:.4g}; d2 needs more than -1/3\n",
             told["lambda_min"].get<double>());
  PrintWeights(told);
  fmt::print("\n");
  for (const auto& [name, objection] : told["algorithms"].items()) {
    const auto why = objection.get<std::string>();
    const bool is_doubtful = told.contains("doubts") && told["doubts"].contains(name);
    const std::string runs =
        is_doubtful ? "runs, but " + told["doubts"][name].get<std::string>() : "runs";
    fmt::print("{:<18} {}\n", name, why.empty() ? runs : "no: " + why);
  }
  if (told.contains("gossip_step")) PrintSteps(told["gossip_step"]);
}

Status Run(const GraphOptions& options) {
  EQ_ASSIGN_OR_RETURN(const ordered_json told, Describe(options));
  if (options.json) {
    fmt::print("{}\n", JsonText(told, 2));
  } else {
    Print(told);
  }
  return {};
}

constexpr char kGraphExample[] =
    "  elastiquant graph ring --nodes 8\n"
    "  elastiquant graph torus:rows=2,lazy=1 --nodes 8 --codec dither:bits=1\n"
    "  elastiquant graph one-peer-exponential --nodes 16 --json\n"
    "  elastiquant graph ./edges.txt --nodes 5    # a line for each edge: A B [WEIGHT]";

}  // namespace

Command MakeGraphCommand(CLI::App& program) {
  auto options = std::make_shared<GraphOptions>();
  CLI::App* app = AddSubcommand(program, "graph",
                                "Show who averages with whom without a centre, and how fast",
                                kGraphExample);
  app->add_option("graph", options->graph,
                  "ring, torus[:rows=R], hypercube, star, complete, exponential, "
                  "one-peer-exponential, random-regular[:degree=3], erdos-renyi[:p=0.5], "
                  "random-pairs, or a file of edges; each takes lazy=1 for (I + W) / 2")
      ->required();
  app->add_option("--nodes", options->nodes, "Workers")->capture_default_str();
  app->add_option("--seed", options->seed, "Seed of random graphs")->capture_default_str();
  CLI::Option* codec = app->add_option("--codec", options->codec,
                                       "Search for the gossip step under this codec, too");
  app->add_option("--delay", options->delay,
                  "Rounds by which messages count late in that search: 1 is choco:delay=1")
      ->check(CLI::Range(0, 1))
      ->needs(codec);
  app->add_flag("--json", options->json, "Print a JSON object");
  return {app, [options] { return Run(*options); }};
}

}  // namespace elastiquant::cli
