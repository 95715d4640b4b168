#include "elastiquant/train/algorithm_validation.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic/adapt.h"
#include "elastiquant/codec/rate.h"
#include "elastiquant/codec/remembering.h"
#include "elastiquant/models/model.h"
#include "elastiquant/policy/bit_policy.h"
#include "elastiquant/policy/worker_sparsity.h"
#include "elastiquant/protocol/gossip/gossip.h"
#include "elastiquant/stream/codec_stream.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/jpeg_samples.h"
#include "elastiquant/train/option_range.h"

namespace elastiquant {
namespace {

// Whether somebody asks for a way by which the mean of gradients comes about.
bool ChoosesExchange(const TrainOptions& o) {
  return !o.codec_down.empty() || o.exchange != "auto";
}

// What algorithms need that use a codec as it is in the first step.
Status ValidatePlainCodec(const TrainOptions& o) {
  const std::string given = "--algorithm " + o.algorithm;
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(o.codec));
  const std::string bad = "codec '" + codec->spec() + "' ";
  if (HasLearningRate(*codec)) {
    return InvalidArgument(bad + "has the learning rate in its memory, and " + given +
                           " does not tell it: give it lr=outside");
  }
  if (IsAdaptive(*codec)) {
    return InvalidArgument(bad + "fits its levels as training goes on, and " + given +
                           " does not let it: take another codec");
  }
  if (!o.dump_gradients.empty()) {
    return InvalidArgument("--dump-gradients is for --algorithm allreduce, in which every " +
                           std::string("step's mean gradient moves the weights"));
  }
  return Status::Ok();
}

// What algorithms need whose workers train alone between two exchanges.
Status ValidateLocal(const TrainOptions& o, const Algorithm& algorithm) {
  const std::string given = "--algorithm " + o.algorithm;
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--fragments", o.fragments, 1));
  const auto phases = ParsePhases(o.every_later);
  if (!phases.ok()) return phases.status();
  if (!phases->empty() && o.every_growth > 0) {
    return InvalidArgument(
        "--every-later and --every-growth both say how rounds change: give "
        "one of them");
  }
  const auto schedule = RoundSchedule::Make({.every = ShortestRoundOf(o),
                                             .fragments = static_cast<size_t>(o.fragments),
                                             .delay = DelayOf(o)});
  if (!schedule.ok()) return InvalidArgument(given + ": " + schedule.status().message());
  if (algorithm.eager && (o.fragments > 1 || DelayOf(o) != RoundOf(o) || algorithm.mix > 0)) {
    return InvalidArgument(given + " hides a round behind the next one: it has no fragments, " +
                           "no mix, and no other delay than --every");
  }
  const bool has_own_codecs =
      algorithm.kind == AlgorithmKind::kSparsity || !o.bits_policy.empty();
  if (has_own_codecs && (o.fragments != 1 || DelayOf(o) > 0)) {
    return InvalidArgument(given + " is asked to choose what each worker sends by what the " +
                           "round before has shown: leave out --fragments, delay and eager");
  }
  if (algorithm.mix > 0 && DelayOf(o) == 0) {
    return InvalidArgument(given + ": mix keeps a part of what was learnt while a mean was " +
                           "under way: it needs a delay");
  }
  if (!algorithm.eager && algorithm.mix == 0 && DelayOf(o) == ShortestRoundOf(o)) {
    return InvalidArgument(given + ": with a delay of a whole round a mean comes when the " +
                           "next round is to be sent, and without a mix it overwrites all " +
                           "that this round has learnt: give a mix or a shorter delay, or " +
                           "diloco:eager=1");
  }
  EQ_RETURN_IF_ERROR(
      Within("--every-growth", static_cast<double>(o.every_growth), 0, 3, false));
  if (algorithm.eager && (o.every_growth > 0 || !phases->empty())) {
    return InvalidArgument(given + " hides a round behind the next one, which must be as " +
                           "long: leave out --every-growth and --every-later");
  }
  return ValidatePlainCodec(o);
}

Status ValidateDelayed(const TrainOptions& o) {
  if (o.fragments != 1) {
    return InvalidArgument("--algorithm " + o.algorithm + " sends all gradients at once: it " +
                           "has no --fragments");
  }
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--every", RoundOf(o), 1));
  return ValidatePlainCodec(o);
}

Status ValidateLazy(const TrainOptions& o) {
  if (ChoosesExchange(o)) {
    return InvalidArgument("--algorithm " + o.algorithm + " sends every message to all " +
                           "workers: it has neither --exchange nor --codec-down");
  }
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(o.codec));
  EQ_RETURN_IF_ERROR(CheckRemembersNothing(
      *codec, "--algorithm " + o.algorithm + " sends again what a message lost: take the " +
                  "codec without its memory"));
  return ValidatePlainCodec(o);
}

// What is needed where there is no centre.
Status ValidateGossip(const TrainOptions& o, const Algorithm& algorithm) {
  const std::string given = "--algorithm " + o.algorithm;
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--every", RoundOf(o), 1));
  if (ChoosesExchange(o) || o.fragments != 1) {
    return InvalidArgument(given + " sends weights to neighbours: it has neither --exchange " +
                           "nor --codec-down nor --fragments");
  }
  EQ_ASSIGN_OR_RETURN(const std::optional<double> step, GossipStepOf(o));
  const auto graph = Graph::Parse(GraphOf(o), static_cast<size_t>(o.workers), o.seed);
  if (!graph.ok()) return InvalidArgument("--graph: " + graph.status().message());
  GossipOptions options{.kind = algorithm.gossip, .graph = *graph};
  options.codec = o.codec;
  options.step = step.value_or(1);
  options.delay = std::max<int64_t>(algorithm.delay, 0);
  const Status status = GossipNode::Check(std::move(options));
  if (!status.ok()) return InvalidArgument(given + ": " + status.message());
  return ValidatePlainCodec(o);
}

// What is needed where samples travel.
Status ValidateData(const TrainOptions& o, const Algorithm& algorithm) {
  const std::string given = "--algorithm " + o.algorithm;
  if (ChoosesExchange(o)) {
    return InvalidArgument(given + " sends samples, and refinements to all workers: it has " +
                           "neither --exchange nor --codec-down");
  }
  const auto codec = MakeSampleCodec(o.samples, {.side = 1, .channels = 1}, 0);
  if (!codec.ok()) return InvalidArgument("--samples: " + codec.status().message());
  EQ_ASSIGN_OR_RETURN(const int64_t context, ContextOf(o.model));
  if (context > 0) {
    return InvalidArgument(given + " sends images, and --model " + o.model + " reads text");
  }
  if (algorithm.central && (algorithm.refine || algorithm.skipped > 0)) {
    return InvalidArgument(given +
                           ": where worker 0 alone computes, the others have no model " +
                           "to refine gradients with, or to tell which samples matter: leave " +
                           "out refine and skip");
  }
  if (algorithm.unbiased && algorithm.skipped == 0) {
    return InvalidArgument(given + ": unbiased says how samples are skipped: it needs skip");
  }
  if (!algorithm.refine && o.codec != UsualCodecOf(o)) {
    return InvalidArgument(given + " sends no gradients: leave out --codec, or give refine=1");
  }
  return ValidatePlainCodec(o);
}

// Refuses options that would be ignored: whoever gives one expects something of it.
Status ValidateUnused(const TrainOptions& o, const Algorithm& algorithm) {
  const std::string given = "--algorithm " + o.algorithm;
  const bool sends_data = algorithm.kind == AlgorithmKind::kQuantisedData;
  if (o.samples != TrainOptions{}.samples && !sends_data) {
    return InvalidArgument("--samples is for --algorithm quantised-data, whose workers send " +
                           std::string("samples"));
  }
  const bool sends_all_alike =
      algorithm.is_gossip() || algorithm.is_lazy() || SendsSamplesOnly(o);
  if (o.exact != TrainOptions{}.exact && sends_all_alike) {
    return InvalidArgument(given + " sends all layers under one codec: it has no --exact");
  }
  if (o.adapt_every == 0) return Status::Ok();
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(o.codec));
  if (IsAdaptive(*codec)) return Status::Ok();
  return InvalidArgument("--adapt-every is for codecs that fit their levels as training goes " +
                         std::string("on, alq and amq, and not for '") + codec->spec() + "'");
}

// What an algorithm needs of rounds, codecs and the optimiser.
Status ValidateKind(const TrainOptions& o, const Algorithm& algorithm) {
  if (!algorithm.is_gossip() && (!o.graph.empty() || o.gossip_step != "auto")) {
    return InvalidArgument("--graph and --gossip-step are for algorithms without a centre, " +
                           std::string("such as dpsgd and choco"));
  }
  if (TrainsAlone(o)) return ValidateLocal(o, algorithm);
  if (o.every_growth != 0 || !o.every_later.empty()) {
    return InvalidArgument(
        "--every-growth and --every-later are for algorithms whose workers train alone "
        "(local-sgd, diloco, sparseloco, and with --every those that send unequal parts)");
  }
  if (algorithm.kind == AlgorithmKind::kDelayed) return ValidateDelayed(o);
  if (algorithm.is_gossip()) return ValidateGossip(o, algorithm);
  const bool has_every = algorithm.kind == AlgorithmKind::kSparsity;
  if (has_every) EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--every", RoundOf(o), 1));
  if ((o.every != 0 && !has_every) || o.fragments != 1) {
    return InvalidArgument(
        "--every and --fragments are for algorithms whose workers train alone (local-sgd, "
        "diloco, sparseloco); --every is for delayed, uniform, dagc-r, dagc-a and accordion, "
        "too");
  }
  if (algorithm.is_lazy()) return ValidateLazy(o);
  if (algorithm.kind == AlgorithmKind::kQuantisedData) return ValidateData(o, algorithm);
  if (algorithm.kind == AlgorithmKind::kAllReduce) return Status::Ok();
  const std::string given = "--algorithm " + o.algorithm;
  if (algorithm.is_adam() && o.optimizer != "adamw") {
    return InvalidArgument(given + " is a kind of Adam: it needs --optimizer adamw");
  }
  if (algorithm.kind == AlgorithmKind::kDemo) {
    if (algorithm.top > algorithm.block * algorithm.block) {
      return InvalidArgument(given + " sends top=" + NumberText(algorithm.top) + " values of " +
                             "each block, and one of block=" + NumberText(algorithm.block) +
                             " squared has fewer: lower top");
    }
    if (algorithm.bits != 32 && algorithm.bits != 16 && algorithm.bits != 1) {
      return InvalidArgument(given + " sends values in bits=32, 16 (bfloat16) or 1 (signs), " +
                             "not " + NumberText(algorithm.bits));
    }
    if (o.optimizer != "sgd" || o.momentum != 0) {
      return InvalidArgument(given + " has momentum of its own: it needs --optimizer sgd " +
                             "--momentum 0");
    }
    if (o.clip_norm > 0) {
      return InvalidArgument(given + " moves weights by signs: --clip-norm has no meaning");
    }
  }
  return Status::Ok();
}

// What algorithms need by which workers send unequal parts.
Status ValidateSparsity(const TrainOptions& o) {
  const std::string given = "--algorithm " + o.algorithm;
  const std::vector<double> equal(static_cast<size_t>(o.workers), 1);
  EQ_ASSIGN_OR_RETURN(const policy::Sparsity sparsity, policy::ParseSparsity(o.algorithm));
  if (o.ratio != 0 && sparsity.most > 0) {
    return InvalidArgument(given + " has its greatest ratio in `most`: leave out --ratio, " +
                           "which is the same");
  }
  const auto made = policy::WorkerSparsity::Make(sparsity, RatioOf(o), equal, 0);
  if (!made.ok()) {
    return InvalidArgument(given + " --ratio " + NumberText(RatioOf(o)) + ": " +
                           made.status().message());
  }
  if (o.codec != UsualCodecOf(o)) {
    return InvalidArgument(given + " chooses each worker's codec: leave out --codec, and say " +
                           "with --ratio how much is sent");
  }
  if (o.codec_down.empty()) return Status::Ok();
  return InvalidArgument(given +
                         " sends sparse gradients, whose sums are sent on as they are: " +
                         "leave out --codec-down");
}

Status ValidateRatio(const TrainOptions& o, const Algorithm& algorithm) {
  if (algorithm.kind == AlgorithmKind::kSparsity) return ValidateSparsity(o);
  if (o.ratio == 0) return Status::Ok();
  return InvalidArgument(
      "--ratio is for --algorithm uniform, dagc-r, dagc-a or accordion; "
      "codecs have ratios of their own, as in --codec 'topk:ratio=0.01|ef'");
}

Status ValidateBitsPolicy(const TrainOptions& o, const Algorithm& algorithm) {
  if (o.bits_policy.empty()) return Status::Ok();
  const std::string given = "--bits-policy " + o.bits_policy;
  const auto policy = policy::ParseBitPolicy(o.bits_policy, {.weights = {1}});
  if (!policy.ok()) return InvalidArgument("--bits-policy: " + policy.status().message());
  const bool averages = algorithm.kind == AlgorithmKind::kAllReduce ||
                        algorithm.kind == AlgorithmKind::kLocalSgd ||
                        algorithm.kind == AlgorithmKind::kDiLoCo;
  if (!averages) {
    return InvalidArgument(given + " needs --algorithm allreduce, local-sgd or diloco");
  }
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(o.codec));
  if (RateOf(*codec) == RateOf(*MakeCodec("dither").value())) return Status::Ok();
  return InvalidArgument(given + " chooses bits: it needs --codec dither, without bits, but " +
                         "the codec is '" + codec->spec() + "'");
}

Status ValidateGossipLoss(const TrainOptions& o, GossipKind kind) {
  if (CanLoseWorkers(kind)) return Status::Ok();
  return InvalidArgument(
      "--on-loss go-on is not for --algorithm " + o.algorithm +
      ", whose workers remember more of each other than a worker that comes back can be given: "
      "take " +
      kThoseThatCanLoseWorkers);
}

// A worker that comes back has nothing that its codec remembered.
Status ValidateOnLoss(const TrainOptions& o, const Algorithm& algorithm) {
  if (o.on_loss != "stop" && o.on_loss != "go-on") {
    return InvalidArgument("--on-loss is '" + o.on_loss + "'; valid are: stop, go-on");
  }
  if (o.on_loss == "stop") {
    if (o.least_workers == 1) return Status::Ok();
    return InvalidArgument("--least-workers is for --on-loss go-on");
  }
  EQ_RETURN_IF_ERROR(AtLeast("--least-workers", o.least_workers, 1));
  if (o.least_workers > o.workers) {
    return InvalidArgument("--least-workers is " + NumberText(o.least_workers) +
                           ", and there are " + NumberText(o.workers) + " workers");
  }
  if (algorithm.is_gossip()) return ValidateGossipLoss(o, algorithm.gossip);
  if (algorithm.kind == AlgorithmKind::kSparsity && TrainsAlone(o)) {
    return InvalidArgument("--on-loss go-on cannot tell a worker that comes back what " +
                           std::string("--algorithm ") + o.algorithm +
                           " has learnt of earlier rounds: leave one of them out");
  }
  if (!algorithm.is_local()) {
    return InvalidArgument(
        "--on-loss go-on is for algorithms whose workers meet in rounds: "
        "local-sgd, diloco or sparseloco, or with neighbours only, such as choco; under "
        "--algorithm " +
        o.algorithm + " every step needs all workers");
  }
  if (!o.bits_policy.empty()) {
    return InvalidArgument(
        "--on-loss go-on cannot tell a worker that comes back what --bits-policy has learnt of "
        "earlier rounds: leave one of them out");
  }
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(o.codec));
  if (codec->exchange() != Exchange::kFactors) return Status::Ok();
  return InvalidArgument("--on-loss go-on cannot give a worker that comes back what codec '" +
                         codec->spec() + "' remembers alike on all: take another codec");
}

}  // namespace

Status ValidateAlgorithm(const TrainOptions& options) {
  const auto algorithm = ParseAlgorithm(options.algorithm);
  if (!algorithm.ok()) {
    return InvalidArgument("--algorithm: " + algorithm.status().message());
  }
  EQ_RETURN_IF_ERROR(ValidateUnused(options, *algorithm));
  EQ_RETURN_IF_ERROR(ValidateKind(options, *algorithm));
  EQ_RETURN_IF_ERROR(ValidateRatio(options, *algorithm));
  EQ_RETURN_IF_ERROR(ValidateBitsPolicy(options, *algorithm));
  return ValidateOnLoss(options, *algorithm);
}

}  // namespace elastiquant
