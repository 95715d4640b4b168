#include "elastiquant/rates/pair_rates.h"

#include <cmath>
#include <cstddef>
#include <vector>

#include "elastiquant/base/json_number.h"
#include "elastiquant/base/random.h"
#include "elastiquant/protocol/gossip/gossip.h"
#include "elastiquant/rates/gossip_workers.h"
#include "elastiquant/theory/pair_gossip.h"

namespace elastiquant::rates {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kPairRounds = 8000, kSettling = 200;
constexpr size_t kKickEvery = 50;  // rounds, in which a kick is nearly forgotten
// The last round after a kick in which distances are compared: an earlier one if the mean
// square is this part of what it was, so that rounding of floats does not count.
constexpr size_t kLate = 48;
constexpr double kLeastPart = 1e-8;
constexpr double kKick = .05;

// Small moves at random, of all workers.
std::vector<float> KickOf(size_t size, uint64_t seed, size_t round) {
  const LaneKeys keys = MakeLaneKeys(DeriveKey(seed, round, 0, 2));
  std::vector<float> kick(size);
  for (size_t i = 0; i < size; ++i) {
    const auto uniform =
        static_cast<double>(UniformFloat(RandomBits(keys, static_cast<uint32_t>(i))));
    kick[i] = static_cast<float>(kKick * (uniform - .5));
  }
  return kick;
}

// Two runs pick the same neighbours. One of them is kicked now and then, and the mean square of
// its distance from the other is compared between rounds after that.
Result<GossipMeasured> RunPairs(const GossipProblem& problem, const GossipOptions& options) {
  EQ_ASSIGN_OR_RETURN(GossipWorkers calm, GossipWorkers::Make(problem, options));
  EQ_ASSIGN_OR_RETURN(GossipWorkers kicked, GossipWorkers::Make(problem, options));
  const size_t size = options.graph->nodes() * problem.elements();
  std::vector<double> squares(kKickEvery);
  double left = 0;
  for (size_t round = 0; round < kSettling + kPairRounds; ++round) {
    const size_t since = round % kKickEvery;
    const auto kick = since == 0 ? KickOf(size, options.seed, round) : std::vector<float>();
    EQ_ASSIGN_OR_RETURN(const bool calm_goes_on, calm.Round());
    EQ_ASSIGN_OR_RETURN(const bool kicked_goes_on, kicked.Round(kick));
    if (!calm_goes_on || !kicked_goes_on) return GossipMeasured{};
    if (round < kSettling) continue;
    const std::vector<double> weights = calm.Weights();
    left += std::pow(problem.Left(weights), 2);
    const double distance = Distance(weights, kicked.Weights());
    squares[since] += distance * distance;
  }
  size_t last = 0;
  while (last < kLate && squares[last + 1] >= kLeastPart * squares[0]) ++last;
  const size_t first = last / 2;  // before it, distances that die out faster count, too
  GossipMeasured measured{.left = std::sqrt(left / static_cast<double>(kPairRounds))};
  if (last > first) {
    measured.rate =
        std::pow(squares[last] / squares[first], .5 / static_cast<double>(last - first));
  }
  return measured;
}

}  // namespace

Result<Json> PairRates(const std::shared_ptr<const Graph>& graph, const GossipProblem& problem,
                       uint64_t seed) {
  Json row = {{"algorithm", "ad-psgd"}};
  GossipOptions options{.kind = GossipKind::kAdPsgd,
                        .graph = graph,
                        .elements = problem.elements(),
                        .seed = seed};
  const Status objection = GossipNode::Check(options);
  if (!objection.ok()) {
    row["refused"] = objection.message();
    return row;
  }
  row["step"] = options.step;
  theory::PairGossip pairs{.step = options.step};
  const std::vector<bool> asks = graph->Sides();
  for (size_t w = 0; w < graph->nodes(); ++w) {
    const std::vector<int>& others = graph->receivers(static_cast<int>(w));
    pairs.asked.emplace_back();
    if (asks[w]) pairs.asked.back().assign(others.begin(), others.end());
  }
  const GossipProblem::Outcome outcome = problem.Predict(pairs);
  EQ_ASSIGN_OR_RETURN(const GossipMeasured measured, RunPairs(problem, options));
  row["rate"] = outcome.rate;
  row["measured_rate"] = NumberOrNull(measured.rate);
  row["left"] = outcome.left;
  row["measured_left"] = NumberOrNull(measured.left);
  return row;
}

}  // namespace elastiquant::rates
