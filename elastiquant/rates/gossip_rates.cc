#include "elastiquant/rates/gossip_rates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "elastiquant/base/json_number.h"
#include "elastiquant/codec/registry.h"
#include "elastiquant/graph/mixing.h"
#include "elastiquant/protocol/gossip/gossip.h"
#include "elastiquant/protocol/gossip/step_search.h"
#include "elastiquant/rates/gossip_problem.h"
#include "elastiquant/rates/gossip_workers.h"
#include "elastiquant/rates/pair_rates.h"
#include "elastiquant/theory/linear_gossip.h"

namespace elastiquant::rates {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kRounds = 2000;
// The part of the way, of distances from where they end, over which a rate is measured. At the
// beginning several eigenvectors count; at the end only the rounding of floats does.
constexpr double kFrom = 1e-2, kTo = 1e-5;
constexpr size_t kSwing = 100;     // rounds after which a distance does not come back
constexpr double kAtRest = 1e-6;   // of weights, that they move by meanwhile: floats' rounding
constexpr double kSettled = 1e-5;  // of what is left, that may change meanwhile if it is known
constexpr size_t kMostPeriod = 64;

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
    {"dcd", GossipKind::kDcd, theory::Recursion::kPlain},
    {"ecd", GossipKind::kEcd, theory::Recursion::kPlain},
    {"choco", GossipKind::kChoco, theory::Recursion::kReplicas},
    {"choco:delay=1", GossipKind::kChoco, theory::Recursion::kLate, 1},
    {"deepsqueeze", GossipKind::kDeepSqueeze, theory::Recursion::kReplicas},
    {"sgp", GossipKind::kPushSum, theory::Recursion::kReplicas},
    {"noloco", GossipKind::kNoLoCo, theory::Recursion::kNoLoCo},
};

// How fast the workers come to the end that they are known to come to: between the last rounds
// in which they are as far from it as kFrom and kTo, because distances may swing. Weights may
// differ from round to round of a period.
Result<std::optional<double>> RateTo(const std::vector<double>& end,
                                     const GossipProblem& problem,
                                     const GossipOptions& options) {
  EQ_ASSIGN_OR_RETURN(GossipWorkers workers, GossipWorkers::Make(problem, options));
  const size_t period = options.graph->period();
  double whole = 0;
  size_t since = 0, until = 0;
  for (size_t round = 1; round <= std::min(kRounds, until + kSwing); ++round) {
    EQ_RETURN_IF_ERROR(workers.Round().status());
    if (round % period != 0) continue;
    const double distance = Distance(problem.Seen(workers.Weights()), end);
    if (round == period) whole = distance;
    if (distance > kFrom * whole) since = round;
    if (distance > kTo * whole) until = round;
  }
  if (until == since || until + kSwing > kRounds) return std::optional<double>();
  return std::optional(std::pow(kTo / kFrom, 1.0 / static_cast<double>(until - since)));
}

Result<GossipMeasured> Run(const GossipProblem& problem, const GossipOptions& options) {
  EQ_ASSIGN_OR_RETURN(GossipWorkers workers, GossipWorkers::Make(problem, options));
  const size_t period = options.graph->period();
  const size_t block = (kSwing + period - 1) / period * period;
  GossipMeasured measured;
  double left = 0;
  for (size_t round = 1; round <= kRounds / period * period; ++round) {
    EQ_ASSIGN_OR_RETURN(const bool goes_on, workers.Round());
    if (!goes_on) return GossipMeasured{};
    if (round % block != 0) continue;
    const std::vector<double> before = std::exchange(measured.end, workers.Weights());
    const double left_before = std::exchange(left, problem.Left(measured.end));
    if (before.empty()) continue;
    const bool has_settled = std::abs(left_before - left) <= kSettled;
    measured.left = has_settled ? std::optional(left) : std::nullopt;
    const std::vector<double> none(measured.end.size());
    if (Distance(before, measured.end) <= kAtRest * Distance(measured.end, none)) break;
  }
  measured.end = workers.Weights();
  EQ_ASSIGN_OR_RETURN(measured.rate, RateTo(problem.Seen(measured.end), problem, options));
  return measured;
}

// Steps as `train` takes them, when the user gives none.
class Steps {
 public:
  explicit Steps(const std::string& codec) : codec_(codec) {}

  Result<double> Of(GossipOptions options) {
    options.codec = codec_.empty() ? "fp32" : codec_;
    EQ_ASSIGN_OR_RETURN(const bool needs_search, NeedsStepSearch(options));
    if (!needs_search) return 1;
    auto found = by_delay_.find(options.delay);
    if (found == by_delay_.end()) {
      EQ_ASSIGN_OR_RETURN(const StepSearch search, SearchGossipStep(options));
      found = by_delay_.emplace(options.delay, search.best).first;
    }
    return found->second;
  }

 private:
  std::string codec_;
  std::map<int64_t, double> by_delay_;
};

Result<Json> RowOf(const Contestant& contestant, const GossipRateOptions& o,
                   const std::shared_ptr<const Graph>& graph, const GossipProblem& problem,
                   Steps* steps) {
  Json row = {{"algorithm", contestant.name}};
  GossipOptions options{
      .kind = contestant.kind, .graph = graph, .elements = problem.elements()};
  options.seed = o.seed;
  options.delay = contestant.delay;
  const Status objection = GossipNode::Check(options);
  if (!objection.ok()) {
    row["refused"] = objection.message();
    return row;
  }
  EQ_ASSIGN_OR_RETURN(options.step, steps->Of(options));
  row["step"] = options.step;
  theory::LinearGossip gossip{.recursion = contestant.recursion,
                              .step = options.step,
                              .outer_rate = options.outer_rate,
                              .outer_momentum = options.outer_momentum};
  for (size_t t = 0; t < graph->period(); ++t) gossip.mixings.push_back(graph->At(t));
  EQ_ASSIGN_OR_RETURN(const GossipMeasured measured, Run(problem, options));
  const GossipProblem::Outcome outcome = problem.Predict(gossip, measured.end);
  row["rate"] = outcome.rate;
  row["measured_rate"] = NumberOrNull(measured.rate);
  row["left"] = NumberOrNull(outcome.left);
  row["measured_left"] = NumberOrNull(measured.left);
  if (o.codec.empty()) return row;
  options.codec = o.codec;
  EQ_ASSIGN_OR_RETURN(const GossipMeasured coded, Run(problem, options));
  row["codec_rate"] = NumberOrNull(coded.rate);
  return row;
}

}  // namespace

Result<Json> GossipRates(const GossipRateOptions& o) {
  EQ_ASSIGN_OR_RETURN(const auto graph, Graph::Parse(o.graph, o.nodes, o.seed));
  if (graph->period() == 0 || graph->period() > kMostPeriod) {
    return InvalidArgument("rates are known for graphs that repeat after " +
                           std::to_string(kMostPeriod) + " rounds or fewer, which " +
                           graph->spec() + " does not: take a ring, a torus, " +
                           "one-peer-exponential, ...");
  }
  if (!o.codec.empty()) EQ_RETURN_IF_ERROR(MakeCodec(o.codec).status());
  EQ_ASSIGN_OR_RETURN(const auto problem,
                      MakeGossipProblem(o.problem, o.nodes, o.seed, o.curvature));
  Json rows = Json::array();
  Steps steps(o.codec);
  for (const Contestant& contestant : kContestants) {
    EQ_ASSIGN_OR_RETURN(Json row, RowOf(contestant, o, graph, *problem, &steps));
    rows.push_back(std::move(row));
  }
  EQ_ASSIGN_OR_RETURN(Json pairs, PairRates(graph, *problem, o.seed));
  rows.push_back(std::move(pairs));
  return Json{{"graph", graph->spec()},
              {"nodes", graph->nodes()},
              {"problem", o.problem},
              {"curvature", o.curvature},
              {"codec", o.codec.empty() ? Json(nullptr) : Json(o.codec)},
              {"unit", problem->unit()},
              {"rows", std::move(rows)}};
}

}  // namespace elastiquant::rates
