#include "elastiquant/protocol/gossip/step_search.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <utility>

#include "elastiquant/base/random.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {
namespace {

using Nodes = std::vector<std::unique_ptr<GossipNode>>;

constexpr int kRounds = 30;
constexpr size_t kValues = 65536;                       // of all workers together, at most
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

Result<double> ContractionOf(const GossipOptions& options) {
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
  for (int round = 0; round < kRounds; ++round) EQ_RETURN_IF_ERROR(RunRound(nodes, still));
  const double last = ErrorOf(nodes, options.elements);
  if (!(first > 0)) return 0;
  if (!std::isfinite(last)) return HUGE_VAL;
  return std::pow(std::max(last, 0.0) / first, 1.0 / kRounds);
}

}  // namespace

Result<bool> NeedsStepSearch(const GossipOptions& options) {
  if (options.kind == GossipKind::kDcd || options.kind == GossipKind::kEcd) return false;
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(options.codec));
  return codec->codec_class() != CodecClass::kLossless || options.delay > 0;
}

Result<StepSearch> SearchGossipStep(const GossipOptions& options) {
  GossipOptions trial = options;
  trial.kind = GossipKind::kChoco;
  trial.threads = 1;
  trial.shapes.clear();
  trial.elements = std::clamp(kValues / options.graph->nodes(), kFewestEach, kMostEach);
  StepSearch search;
  double least = 0;
  for (const double step : {1.0, .8, .6, .5, .4, .3, .2, .1, .05, .02}) {
    trial.step = step;
    const Result<double> contraction = ContractionOf(trial);
    // A step that is too large may end where nothing can be encoded any more.
    const bool is_lost = contraction.status().code() == StatusCode::kNonFinite ||
                         contraction.status().code() == StatusCode::kOutOfRange;
    if (!contraction.ok() && !is_lost) return contraction.status();
    search.trials.push_back({step, is_lost ? HUGE_VAL : *contraction});
    if (search.trials.size() == 1 || search.trials.back().contraction < least) {
      search.best = step;
      least = search.trials.back().contraction;
    }
  }
  return search;
}

}  // namespace elastiquant
