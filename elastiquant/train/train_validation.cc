// What `train` refuses before it does anything, and what to give instead.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/elastic/adapt.h"
#include "elastiquant/codec/rate.h"
#include "elastiquant/codec/remembering.h"
#include "elastiquant/data/partition.h"
#include "elastiquant/models/model.h"
#include "elastiquant/net/links.h"
#include "elastiquant/policy/bit_policy.h"
#include "elastiquant/policy/worker_sparsity.h"
#include "elastiquant/protocol/gossip/gossip.h"
#include "elastiquant/stream/codec_stream.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/device_pace.h"
#include "elastiquant/train/gradient_dump.h"
#include "elastiquant/train/jpeg_samples.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {
namespace {

template <typename T>
std::string Number(T value) {
  return nlohmann::json(value).dump();
}

template <typename T>
Status AtLeast(const char* option, T value, T least) {
  if (value >= least) return Status::Ok();
  return InvalidArgument(std::string(option) + " is " + Number(value) +
                         "; it must be at least " + Number(least));
}

Status Within(const char* option, double value, double low, double high, bool open_high) {
  if (value >= low && (open_high ? value < high : value <= high)) return Status::Ok();
  return InvalidArgument(std::string(option) + " is " + Number(value) + "; it must be in [" +
                         Number(low) + ", " + Number(high) + (open_high ? ")" : "]"));
}

Status ValidateOptimizer(const TrainOptions& o) {
  if (!(o.learning_rate > 0) || !std::isfinite(o.learning_rate)) {
    return InvalidArgument("--lr is " + Number(o.learning_rate) + "; it must be above 0");
  }
  EQ_RETURN_IF_ERROR(Within("--momentum", o.momentum, 0, 1, true));
  EQ_RETURN_IF_ERROR(Within("--weight-decay", o.weight_decay, 0, 1, false));
  if (o.nesterov && o.momentum == 0)
    return InvalidArgument("--nesterov needs --momentum above 0");
  if (o.update != "sgd" && o.update != "powersgd") {
    return InvalidArgument("--update is '" + o.update + "'; valid are: sgd, powersgd");
  }
  if (o.optimizer != "sgd" && o.optimizer != "adamw") {
    return InvalidArgument("--optimizer is '" + o.optimizer + "'; valid are: sgd, adamw");
  }
  if (o.optimizer == "adamw") {
    EQ_RETURN_IF_ERROR(Within("--beta1", o.beta1, 0, 1, true));
    EQ_RETURN_IF_ERROR(Within("--beta2", o.beta2, 0, 1, true));
    EQ_RETURN_IF_ERROR(Within("--epsilon", o.epsilon, 0, 1, false));
    if (o.nesterov || o.update != "sgd") {
      return InvalidArgument("--nesterov and --update are for --optimizer sgd");
    }
  }
  if (o.precision != "fp32" && o.precision != "bf16") {
    return InvalidArgument("--precision is '" + o.precision + "'; valid are: fp32, bf16");
  }
  if (o.metric != "auto" && o.metric != "plain") {
    return InvalidArgument("--metric is '" + o.metric + "'; valid are: auto, plain");
  }
  if (!(o.clip_norm >= 0) || !std::isfinite(o.clip_norm)) {
    return InvalidArgument("--clip-norm is " + Number(o.clip_norm) +
                           "; it must be at least 0, which means no limit");
  }
  EQ_RETURN_IF_ERROR(Within("--decay-part", o.decay_part, 0, 1, false));
  if (o.update == "powersgd" && (o.momentum == 0 || o.nesterov)) {
    return InvalidArgument(
        "--update powersgd adds the gradient to plain momentum: it needs --momentum above 0, "
        "and no --nesterov");
  }
  EQ_RETURN_IF_ERROR(ParseScheduleKind(o.schedule).status());
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--warmup", o.warmup_steps, 0));
  EQ_RETURN_IF_ERROR(Within("--step-factor", o.step_factor, 0, 1, false));
  for (double m : o.milestones) EQ_RETURN_IF_ERROR(Within("--milestones", m, 0, 1, false));
  return Status::Ok();
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
  if (!o.codec_down.empty() || o.exchange != "auto") {
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
  if (!o.codec_down.empty() || o.exchange != "auto" || o.fragments != 1) {
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

// What an algorithm needs of the other options.
Status ValidateAlgorithm(const TrainOptions& o) {
  const auto algorithm = ParseAlgorithm(o.algorithm);
  if (!algorithm.ok()) {
    return InvalidArgument("--algorithm: " + algorithm.status().message());
  }
  if (TrainsAlone(o)) return ValidateLocal(o, *algorithm);
  if (o.every_growth != 0 || !o.every_later.empty()) {
    return InvalidArgument(
        "--every-growth and --every-later are for algorithms whose workers train alone "
        "(local-sgd, diloco, sparseloco, and with --every those that send unequal parts)");
  }
  if (algorithm->kind == AlgorithmKind::kDelayed) return ValidateDelayed(o);
  if (algorithm->is_gossip()) return ValidateGossip(o, *algorithm);
  if (!o.graph.empty() || o.gossip_step != "auto") {
    return InvalidArgument("--graph and --gossip-step are for algorithms without a centre, " +
                           std::string("such as dpsgd and choco"));
  }
  const bool has_every = algorithm->kind == AlgorithmKind::kSparsity;
  if (has_every) EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--every", RoundOf(o), 1));
  if ((o.every != 0 && !has_every) || o.fragments != 1) {
    return InvalidArgument(
        "--every and --fragments are for algorithms whose workers train alone (local-sgd, "
        "diloco, sparseloco); --every is for delayed, uniform, dagc-r, dagc-a and accordion, "
        "too");
  }
  if (algorithm->is_lazy()) return ValidateLazy(o);
  if (algorithm->kind == AlgorithmKind::kQuantisedData) return ValidateData(o, *algorithm);
  if (algorithm->kind == AlgorithmKind::kAllReduce) return Status::Ok();
  const std::string given = "--algorithm " + o.algorithm;
  if (algorithm->is_adam() && o.optimizer != "adamw") {
    return InvalidArgument(given + " is a kind of Adam: it needs --optimizer adamw");
  }
  if (algorithm->kind == AlgorithmKind::kDemo) {
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
  const auto made = policy::WorkerSparsity::Make(sparsity, RatioOf(o), equal, 0);
  if (!made.ok()) {
    return InvalidArgument(given + " --ratio " + Number(RatioOf(o)) + ": " +
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

Status ValidateRatio(const TrainOptions& o) {
  const auto algorithm = ParseAlgorithm(o.algorithm);
  if (algorithm.ok() && algorithm->kind == AlgorithmKind::kSparsity) return ValidateSparsity(o);
  if (o.ratio == 0) return Status::Ok();
  return InvalidArgument(
      "--ratio is for --algorithm uniform, dagc-r, dagc-a or accordion; "
      "codecs have ratios of their own, as in --codec 'topk:ratio=0.01|ef'");
}

Status ValidateBitsPolicy(const TrainOptions& o) {
  if (o.bits_policy.empty()) return Status::Ok();
  const std::string given = "--bits-policy " + o.bits_policy;
  const auto policy = policy::ParseBitPolicy(o.bits_policy, {.weights = {1}});
  if (!policy.ok()) return InvalidArgument("--bits-policy: " + policy.status().message());
  const auto algorithm = ParseAlgorithm(o.algorithm);
  const bool averages = algorithm.ok() && (algorithm->kind == AlgorithmKind::kAllReduce ||
                                           algorithm->kind == AlgorithmKind::kLocalSgd ||
                                           algorithm->kind == AlgorithmKind::kDiLoCo);
  if (!averages) {
    return InvalidArgument(given + " needs --algorithm allreduce, local-sgd or diloco");
  }
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(o.codec));
  if (RateOf(*codec) == RateOf(*MakeCodec("dither").value())) return Status::Ok();
  return InvalidArgument(given + " chooses bits: it needs --codec dither, without bits, but " +
                         "the codec is '" + codec->spec() + "'");
}

Status ValidateCodec(const TrainOptions& o) {
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(o.codec));
  EQ_RETURN_IF_ERROR(ExchangeOf(o, codec, o.workers).status());
  if (!MomentumOf(*codec)) return Status::Ok();
  if (o.optimizer == "adamw") {
    return InvalidArgument("codec '" + codec->spec() +
                           "' has momentum of its own, which --optimizer adamw has too: take "
                           "another codec, or --optimizer sgd --momentum 0");
  }
  if (o.momentum != 0) {
    return InvalidArgument("codec '" + codec->spec() +
                           "' has momentum of its own, and --momentum " + Number(o.momentum) +
                           " would add another: give --momentum 0");
  }
  if (IsAllReduce(o)) return Status::Ok();
  return InvalidArgument("codec '" + codec->spec() +
                         "' has momentum of its own, which --algorithm " + o.algorithm +
                         " has too: take another codec");
}

// A partition makes the workers count by what they have, which needs a weighted mean.
Status ValidatePartition(const TrainOptions& o) {
  const auto partition = ParsePartition(o.partition);
  if (!partition.ok()) {
    return InvalidArgument("--partition: " + partition.status().message());
  }
  if (partition->is_iid()) return Status::Ok();
  const std::string given = "--partition " + o.partition;
  EQ_ASSIGN_OR_RETURN(const int64_t context, ContextOf(o.model));
  if (context > 0) {
    return InvalidArgument(given + " deals samples by their labels, which text for --model " +
                           o.model + " does not have: leave it out");
  }
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(o.codec));
  EQ_ASSIGN_OR_RETURN(const ExchangeChoice choice, ExchangeOf(o, codec, o.workers));
  if (choice.way() != Exchange::kIntegerSum) return Status::Ok();
  return InvalidArgument(given +
                         " needs a mean that is weighted by how many samples a worker " +
                         "has, and codec '" + codec->spec() +
                         "' goes by integer sums, in which all weigh the same: give "
                         "--exchange two-phase, or another codec");
}

Status ValidateLink(const TrainOptions& o) {
  if (o.link.empty()) return Status::Ok();
  EQ_ASSIGN_OR_RETURN(const Links links, ReadLinks(o.link));
  return o.workers > 1 ? links.Check(o.workers) : Status::Ok();
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
Status ValidateOnLoss(const TrainOptions& o) {
  if (o.on_loss != "stop" && o.on_loss != "go-on") {
    return InvalidArgument("--on-loss is '" + o.on_loss + "'; valid are: stop, go-on");
  }
  if (o.on_loss == "stop") {
    if (o.least_workers == 1) return Status::Ok();
    return InvalidArgument("--least-workers is for --on-loss go-on");
  }
  EQ_RETURN_IF_ERROR(AtLeast("--least-workers", o.least_workers, 1));
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(o.algorithm));
  if (algorithm.is_gossip()) return ValidateGossipLoss(o, algorithm.gossip);
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

Status ValidateVariance(const TrainOptions& o) {
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--measure-variance", o.measure_variance, 0));
  if (o.measure_variance == 0) return Status::Ok();
  if (!IsAllReduce(o) || !o.bits_policy.empty()) {
    return InvalidArgument(
        "--measure-variance is about mean gradients: it needs --algorithm allreduce, and no "
        "--bits-policy");
  }
  if (o.compute.empty()) return Status::Ok();
  return InvalidArgument(
      "--measure-variance makes 20 more gradients at a time, which --compute would slow down: "
      "leave out one of them");
}

Status ValidateCompute(const TrainOptions& o) {
  if (o.compute.empty()) {
    if (o.replay.empty()) return Status::Ok();
    return InvalidArgument("--replay is for --compute, which says how long devices take");
  }
  EQ_RETURN_IF_ERROR(ParseCompute(o.compute).status());
  EQ_ASSIGN_OR_RETURN(const Algorithm algorithm, ParseAlgorithm(o.algorithm));
  if (algorithm.kind == AlgorithmKind::kQuantisedData) {
    return InvalidArgument(
        "--compute paces the gradient of a worker's own batch, and under "
        "--algorithm " +
        o.algorithm + " workers compute those of others");
  }
  if (o.replay.empty()) return Status::Ok();
  if (o.steps == 0) return InvalidArgument("--replay looks at no data: give --steps");
  if (o.resume || !o.init.empty() || o.checkpoint_every > 0) {
    return InvalidArgument(
        "--replay trains nothing: leave out --resume, --init and --checkpoint-every");
  }
  return Status::Ok();
}

Status ValidateRun(const TrainOptions& o) {
  if (o.out.empty()) return InvalidArgument("--out needs a folder's name");
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--steps", o.steps, 0));
  if (o.steps == 0) EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--epochs", o.epochs, 1));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--batch", o.batch, 1));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--checkpoint-every", o.checkpoint_every, 0));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--eval-every", o.eval_every, 0));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--max-skipped", o.max_skipped, 1));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--measure-every", o.measure_every, 0));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--adapt-every", o.adapt_every, 0));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--exact-steps", o.exact_steps, 0));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--bucket-kib", o.bucket_kib, 1));
  if (o.forget_memory && !o.resume) return InvalidArgument("--forget-memory needs --resume");
  EQ_RETURN_IF_ERROR(AtLeast("--threads", o.threads, 0));
  EQ_RETURN_IF_ERROR(AtLeast("--codec-threads", o.codec_threads, 1));
  EQ_RETURN_IF_ERROR(AtLeast("--loader-threads", o.loader_threads, 1));
  EQ_RETURN_IF_ERROR(Within("--timeout", o.timeout_seconds, 1, 86400, false));
  EQ_RETURN_IF_ERROR(Within("--stall-timeout", o.stall_timeout_seconds, 0, 1e7, false));
  EQ_RETURN_IF_ERROR(Within("--workers", o.workers, 1, kMostWorkers, false));
  if (o.check_replicas != "epoch" && o.check_replicas != "every") {
    return InvalidArgument("--check-replicas is '" + o.check_replicas +
                           "'; valid are: epoch, every");
  }
  return Status::Ok();
}

}  // namespace

Status ValidateOptions(const TrainOptions& options) {
  EQ_RETURN_IF_ERROR(ValidateRun(options));
  EQ_RETURN_IF_ERROR(ValidateOptimizer(options));
  EQ_RETURN_IF_ERROR(ParseFaults(options.inject).status());
  if (!options.dump_gradients.empty()) {
    // The data says how many steps epochs are, so some steps prove too large only then.
    constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
    const int64_t steps = options.steps > 0 ? options.steps : kUnknown;
    EQ_RETURN_IF_ERROR(ParseDumpSteps(options.dump_gradients, steps).status());
  }
  EQ_RETURN_IF_ERROR(ValidateAlgorithm(options));
  EQ_RETURN_IF_ERROR(ValidateRatio(options));
  EQ_RETURN_IF_ERROR(ValidateCodec(options));
  EQ_RETURN_IF_ERROR(ValidatePartition(options));
  EQ_RETURN_IF_ERROR(ValidateBitsPolicy(options));
  EQ_RETURN_IF_ERROR(ValidateOnLoss(options));
  EQ_RETURN_IF_ERROR(ValidateVariance(options));
  EQ_RETURN_IF_ERROR(ValidateCompute(options));
  return ValidateLink(options);
}

}  // namespace elastiquant
