#include "elastiquant/protocol/gossip/trial.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <span>
#include <utility>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/protocol/gossip/replicas.h"

namespace elastiquant {
namespace {

using Nodes = std::vector<std::unique_ptr<GossipNode>>;

constexpr int kFewestRounds = 30, kMostRounds = 3000;
constexpr double kNotShown = .1;  // of a vector's square, when nearly all of it is
constexpr double kLost = 1e6;     // what differences have grown by where a trial may end
constexpr size_t kValues = 65536 * kFewestRounds;       // of all workers and rounds, at most
constexpr size_t kFewestEach = 1024, kMostEach = 8192;  // of one worker

std::vector<float> GaussianOf(size_t elements, uint64_t seed, uint64_t worker) {
  const LaneKeys keys = MakeLaneKeys(DeriveKey(seed, 0, worker, 1));
  std::vector<float> values(elements);
  for (size_t e = 0; e < elements; ++e) {
    const auto i = static_cast<uint32_t>(2 * e);
    const double u = 1 - static_cast<double>(UniformFloat(RandomBits(keys, i)));
    const double angle =
        2 * std::numbers::pi * static_cast<double>(UniformFloat(RandomBits(keys, i + 1)));
    values[e] = static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(angle));
  }
  return values;
}

Status RunRound(const Nodes& nodes, const std::vector<std::vector<float>>& moved) {
  struct Letter {
    int from, to;
    std::vector<uint8_t> bytes;
  };
  std::vector<Letter> mail;
  for (size_t w = 0; w < nodes.size(); ++w) {
    EQ_ASSIGN_OR_RETURN(const GossipSends sends, nodes[w]->OnMoved(moved[w]));
    for (const GossipSend& send : sends) {
      mail.push_back({static_cast<int>(w), send.to, {send.bytes.begin(), send.bytes.end()}});
    }
  }
  for (const Letter& letter : mail) {
    EQ_RETURN_IF_ERROR(
        nodes[static_cast<size_t>(letter.to)]->OnMessage(letter.from, letter.bytes).status());
  }
  return {};
}

// The squared distances from the mean.
double ErrorOf(const Nodes& nodes, size_t elements) {
  double error = 0;
  for (size_t e = 0; e < elements; ++e) {
    double mean = 0, squares = 0;
    for (const auto& node : nodes) {
      const auto value = static_cast<double>(node->weights()[e]);
      mean += value / static_cast<double>(nodes.size());
      squares += value * value;
    }
    error += squares - mean * mean * static_cast<double>(nodes.size());
  }
  return error;
}

// How many rounds a trial takes.
Result<int> RoundsOf(const GossipOptions& options) {
  EQ_ASSIGN_OR_RETURN(const EdgeOptions edge, EdgeOf(options));
  const std::vector<float> values = GaussianOf(options.elements, options.seed, 0);
  const double whole = SquaredDistance(values, std::vector<float>(values.size()));
  GossipScratch scratch(1, options.elements);
  Outlet outlet(edge, {});
  int round = 0;
  while (3 * round < kMostRounds) {
    const StreamKey key = DeriveKey(options.seed, static_cast<uint64_t>(round), 0, 2);
    EQ_RETURN_IF_ERROR(
        outlet.Show(values, static_cast<uint64_t>(round), key, scratch).status());
    ++round;
    if (SquaredDistance(values, outlet.replica()) <= kNotShown * whole) break;
  }
  return std::clamp(3 * round, kFewestRounds, kMostRounds);
}

Result<double> Run(const GossipOptions& options, int rounds) {
  const size_t n = options.graph->nodes();
  Nodes nodes;
  std::vector<std::vector<float>> moved(n), still(n, std::vector<float>(options.elements));
  for (size_t w = 0; w < n; ++w) {
    GossipOptions own = options;
    own.rank = static_cast<int>(w);
    EQ_ASSIGN_OR_RETURN(auto node, GossipNode::Make(own, still[w]));
    nodes.push_back(std::move(node));
    moved[w] = GaussianOf(options.elements, options.seed, w);
  }
  EQ_RETURN_IF_ERROR(RunRound(nodes, moved));
  const double first = ErrorOf(nodes, options.elements);
  double last = first;
  int round = 0;
  while (round < rounds && last <= kLost * first) {
    for (const int end = round + kFewestRounds; round < std::min(end, rounds); ++round) {
      EQ_RETURN_IF_ERROR(RunRound(nodes, still));
    }
    last = ErrorOf(nodes, options.elements);
  }
  if (!(first > 0)) return 0;
  if (!std::isfinite(last)) return HUGE_VAL;
  return std::pow(std::max(last, 0.0) / first, 1.0 / round);
}

}  // namespace

Result<GossipTrial> GossipTrial::Make(GossipOptions options) {
  options.threads = 1;
  options.shapes.clear();
  options.elements = kMostEach;
  EQ_ASSIGN_OR_RETURN(const int rounds, RoundsOf(options));
  const size_t each = kValues / (options.graph->nodes() * static_cast<size_t>(rounds));
  options.elements = std::clamp(each, kFewestEach, kMostEach);
  return GossipTrial(std::move(options), rounds);
}

Result<double> GossipTrial::Contraction(double step, int times_as_long) const {
  GossipOptions options = options_;
  options.step = step;
  Result<double> found = Run(options, times_as_long * rounds_);
  const StatusCode code = found.status().code();
  if (code == StatusCode::kNonFinite || code == StatusCode::kOutOfRange) return HUGE_VAL;
  return found;
}

}  // namespace elastiquant
