#include "elastiquant/train/train_options.h"

#include <algorithm>
#include <utility>

#include "elastiquant/base/number.h"
#include "elastiquant/base/split.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/models/model.h"
#include "elastiquant/policy/worker_sparsity.h"
#include "elastiquant/train/algorithm.h"

namespace elastiquant {

bool IsAllReduce(const TrainOptions& options) {
  const auto algorithm = ParseAlgorithm(options.algorithm);
  return algorithm.ok() && algorithm->kind == AlgorithmKind::kAllReduce;
}

std::string MetricOf(const TrainOptions& options) {
  if (options.optimizer != "adamw" || options.metric != "auto") return "plain";
  if (!IsAllReduce(options)) return "plain";  // what they send are no gradients
  const auto codec = MakeCodec(options.codec);
  const bool loses = codec.ok() && (*codec)->codec_class() != CodecClass::kLossless;
  return loses ? "adam" : "plain";
}

bool SharesSteps(const TrainOptions& options) {
  const auto algorithm = ParseAlgorithm(options.algorithm);
  return algorithm.ok() && algorithm->is_gossip() && algorithm->gossip == GossipKind::kAdPsgd &&
         options.on_loss != "go-on";
}

bool NeedsShares(const TrainOptions& options) {
  const auto algorithm = ParseAlgorithm(options.algorithm);
  if (!algorithm.ok()) return false;
  if (algorithm->kind == AlgorithmKind::kQuantisedData) return true;
  // A gradient can only stay as it was sent if it is of the same samples. Text is not dealt.
  const auto context = ContextOf(options.model);
  return algorithm->is_lazy() && context.ok() && *context == 0;
}

double RatioOf(const TrainOptions& options) { return options.ratio == 0 ? .1 : options.ratio; }

std::string UsualCodecOf(const TrainOptions& options) {
  if (!options.bits_policy.empty()) return "dither";
  const auto algorithm = ParseAlgorithm(options.algorithm);
  if (!algorithm.ok()) return "";
  if (algorithm->kind != AlgorithmKind::kSparsity) return std::string(CodecOf(*algorithm));
  return policy::TopKOf(policy::ParseSparsity(options.algorithm).value(), RatioOf(options));
}

std::string UsualExactOf(const TrainOptions& options) {
  const auto algorithm = ParseAlgorithm(options.algorithm);
  const bool all = algorithm.ok() && algorithm->kind == AlgorithmKind::kSparseLoCo;
  return all ? "none" : options.exact;
}

bool SendsSamplesOnly(const TrainOptions& options) {
  const auto algorithm = ParseAlgorithm(options.algorithm);
  return algorithm.ok() && algorithm->kind == AlgorithmKind::kQuantisedData &&
         !algorithm->refine;
}

Result<ExchangeChoice> ExchangeOf(const TrainOptions& options,
                                  std::shared_ptr<const Codec> codec, int world_size) {
  std::shared_ptr<const Codec> down;
  if (!options.codec_down.empty()) {
    EQ_ASSIGN_OR_RETURN(down, MakeCodec(options.codec_down));
  }
  auto choice = ChooseExchange(std::move(codec), std::move(down), options.exchange, world_size);
  if (choice.ok()) return choice;
  std::string given = "--exchange " + options.exchange;
  if (!options.codec_down.empty()) given += " --codec-down " + options.codec_down;
  return Status(choice.status().code(), given + ": " + choice.status().message());
}

bool TrainsAlone(const TrainOptions& options) {
  const auto algorithm = ParseAlgorithm(options.algorithm);
  if (!algorithm.ok()) return false;
  if (algorithm->kind == AlgorithmKind::kSparsity) return RoundOf(options) > 1;
  return algorithm->is_local();
}

int64_t RoundOf(const TrainOptions& options) {
  if (options.every != 0) return options.every;
  return EveryOf(ParseAlgorithm(options.algorithm).value());
}

std::string GraphOf(const TrainOptions& options) {
  if (!options.graph.empty()) return options.graph;
  return std::string(GraphOf(ParseAlgorithm(options.algorithm).value().gossip));
}

Result<std::optional<double>> GossipStepOf(const TrainOptions& options) {
  double step = 0;
  if (options.gossip_step == "auto") return std::optional<double>();
  if (ParseNumber(options.gossip_step, &step) && step > 0 && step <= 1) {
    return std::optional<double>(step);
  }
  return InvalidArgument("--gossip-step is '" + options.gossip_step +
                         "'; give a number above 0, up to 1, or auto");
}

int64_t DelayOf(const TrainOptions& options) {
  const Algorithm algorithm = ParseAlgorithm(options.algorithm).value();
  if (algorithm.delay >= 0) return algorithm.delay;
  return algorithm.eager ? RoundOf(options) : 0;
}

Result<std::vector<RoundPhase>> ParsePhases(std::string_view text) {
  std::vector<RoundPhase> phases;
  if (text.empty()) return phases;
  for (const std::string_view phase : SplitAt(text, ',')) {
    const size_t at = phase.find('@');
    RoundPhase next;
    const bool good = at != std::string_view::npos &&
                      ParseNumber(phase.substr(0, at), &next.every) && next.every >= 1 &&
                      ParseNumber(phase.substr(at + 1), &next.from) && next.from >= 1 &&
                      (phases.empty() || next.from > phases.back().from);
    if (!good) {
      return InvalidArgument("--every-later has '" + std::string(phase) +
                             "'; give H@STEP,... with rising steps, as in 8@500,4@800");
    }
    phases.push_back(next);
  }
  return phases;
}

int64_t ShortestRoundOf(const TrainOptions& options) {
  int64_t shortest = RoundOf(options);
  const auto phases = ParsePhases(options.every_later);
  if (!phases.ok()) return shortest;
  for (const RoundPhase& phase : *phases) shortest = std::min(shortest, phase.every);
  return shortest;
}

// The warm-up is no reason for long rounds.
std::vector<int64_t> RoundEnds(const TrainOptions& options, int64_t total_steps) {
  const auto phases = ParsePhases(options.every_later);
  if (phases.ok() && !phases->empty()) {
    return PhasedRounds(RoundOf(options), *phases, total_steps);
  }
  const Schedule schedule = MakeSchedule(options, total_steps);
  return GrowingRounds(RoundOf(options), static_cast<int>(options.every_growth), schedule.peak,
                       total_steps, [&schedule](int64_t step) {
                         return LearningRate(schedule, std::max(step, schedule.warmup_steps));
                       });
}

Schedule MakeSchedule(const TrainOptions& options, int64_t total_steps) {
  return {.kind = ParseScheduleKind(options.schedule).value(),
          .peak = options.learning_rate,
          .total_steps = total_steps,
          .warmup_steps = options.warmup_steps,
          .milestones = options.milestones,
          .factor = options.step_factor,
          .decay_part = options.decay_part};
}

}  // namespace elastiquant
