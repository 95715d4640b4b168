#include "elastiquant/protocol/gossip/step_search.h"

#include <algorithm>

#include "elastiquant/codec/codec.h"
#include "elastiquant/protocol/gossip/trial.h"

namespace elastiquant {
namespace {

constexpr double kLargeSteps[] = {1, .8, .6, .5, .4, .3, .2, .1, .05, .02};
constexpr double kLeastStep = 1e-4;

// Tries a step, and takes it for the best one if it is.
Status Try(const GossipTrial& trial, double step, StepSearch* search) {
  EQ_ASSIGN_OR_RETURN(const double found, trial.Contraction(step));
  const bool is_best = std::ranges::all_of(
      search->trials, [&](const StepTrial& other) { return found < other.contraction; });
  search->trials.push_back({step, found});
  if (is_best) search->best = step;
  return {};
}

}  // namespace

Result<bool> NeedsStepSearch(const GossipOptions& options) {
  if (options.kind == GossipKind::kDcd || options.kind == GossipKind::kEcd) return false;
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(options.codec));
  return codec->codec_class() != CodecClass::kLossless || options.delay > 0;
}

Result<StepSearch> SearchGossipStep(const GossipOptions& options) {
  GossipOptions choco = options;
  choco.kind = GossipKind::kChoco;
  EQ_ASSIGN_OR_RETURN(const GossipTrial trial, GossipTrial::Make(choco));
  StepSearch search;
  for (const double step : kLargeSteps) EQ_RETURN_IF_ERROR(Try(trial, step, &search));
  while (search.best == search.trials.back().step && search.best > kLeastStep) {
    EQ_RETURN_IF_ERROR(Try(trial, search.best / 2, &search));
  }
  return search;
}

}  // namespace elastiquant
