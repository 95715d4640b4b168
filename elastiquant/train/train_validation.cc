// What `train` refuses before it does anything, and what to give instead.
#include <cmath>
#include <limits>
#include <string>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/remembering.h"
#include "elastiquant/data/partition.h"
#include "elastiquant/models/model.h"
#include "elastiquant/net/links.h"
#include "elastiquant/policy/bit_policy.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/algorithm_validation.h"
#include "elastiquant/train/device_pace.h"
#include "elastiquant/train/fault.h"
#include "elastiquant/train/gradient_dump.h"
#include "elastiquant/train/option_range.h"
#include "elastiquant/train/train_options.h"

namespace elastiquant {
namespace {

// Refuses options that would be ignored: whoever gives one expects something of it.
Status RefuseIgnored(const TrainOptions& o) {
  const TrainOptions usual;
  if (o.schedule != "step" &&
      (o.milestones != usual.milestones || o.step_factor != usual.step_factor)) {
    return InvalidArgument("--milestones and --step-factor are for --schedule step");
  }
  if (o.schedule != "wsd" && o.decay_part != usual.decay_part) {
    return InvalidArgument("--decay-part is for --schedule wsd");
  }
  const bool is_adamw = o.optimizer == "adamw";
  if (!is_adamw &&
      (o.beta1 != usual.beta1 || o.beta2 != usual.beta2 || o.epsilon != usual.epsilon)) {
    return InvalidArgument("--beta1, --beta2 and --epsilon are for --optimizer adamw");
  }
  if (is_adamw && o.momentum != usual.momentum && o.momentum != 0) {
    return InvalidArgument("--momentum is for --optimizer sgd; adamw has --beta1");
  }
  const bool may_have_metric = is_adamw && o.metric == "auto" && IsAllReduce(o);
  if (!may_have_metric && o.exact_steps != usual.exact_steps) {
    return InvalidArgument(
        "--exact-steps is for gradients that are compressed in the metric of an optimiser: it "
        "needs --optimizer adamw, --metric auto and an algorithm that averages gradients in "
        "each step");
  }
  return Status::Ok();
}

Status ValidateOptimizer(const TrainOptions& o) {
  if (!(o.learning_rate > 0) || !std::isfinite(o.learning_rate)) {
    return InvalidArgument("--lr is " + NumberText(o.learning_rate) +
                           "; it must be a number above 0");
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
    return InvalidArgument("--clip-norm is " + NumberText(o.clip_norm) +
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
                           "' has momentum of its own, and --momentum " +
                           NumberText(o.momentum) + " would add another: give --momentum 0");
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
  if (policy::FollowsLoss(o.bits_policy)) {
    return InvalidArgument("--bits-policy " + o.bits_policy +
                           " follows the loss, and --replay has none: take another policy");
  }
  if (o.resume || !o.init.empty() || o.checkpoint_every > 0) {
    return InvalidArgument(
        "--replay trains nothing: leave out --resume, --init and --checkpoint-every");
  }
  return Status::Ok();
}

Status ValidateRun(const TrainOptions& o) {
  // Larger than any run needs, and small enough that the product of two fits in 64 bits.
  constexpr int64_t kMost = 1'000'000'000;
  constexpr int kMostThreads = 1024;
  if (o.out.empty()) return InvalidArgument("--out needs a folder's name");
  EQ_RETURN_IF_ERROR(Between<int64_t>("--steps", o.steps, 0, kMost));
  if (o.steps == 0) EQ_RETURN_IF_ERROR(Between<int64_t>("--epochs", o.epochs, 1, kMost));
  EQ_RETURN_IF_ERROR(Between<int64_t>("--batch", o.batch, 1, kMost));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--image-size", o.image_size, 0));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--checkpoint-every", o.checkpoint_every, 0));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--eval-every", o.eval_every, 0));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--max-skipped", o.max_skipped, 1));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--measure-every", o.measure_every, 0));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--adapt-every", o.adapt_every, 0));
  EQ_RETURN_IF_ERROR(AtLeast<int64_t>("--exact-steps", o.exact_steps, 0));
  EQ_RETURN_IF_ERROR(Between<int64_t>("--bucket-kib", o.bucket_kib, 1, kMost));
  if (o.forget_memory && !o.resume) return InvalidArgument("--forget-memory needs --resume");
  if (o.overwrite && o.resume) {
    return InvalidArgument(
        "--resume goes on with the run in --out, and --overwrite replaces it: "
        "give one of them");
  }
  EQ_RETURN_IF_ERROR(Between("--threads", o.threads, 0, kMostThreads));
  EQ_RETURN_IF_ERROR(Between("--codec-threads", o.codec_threads, 1, kMostThreads));
  EQ_RETURN_IF_ERROR(Between("--loader-threads", o.loader_threads, 1, kMostThreads));
  EQ_RETURN_IF_ERROR(Within("--timeout", o.timeout_seconds, 1, 86400, false));
  EQ_RETURN_IF_ERROR(Within("--stall-timeout", o.stall_timeout_seconds, 0, 1e7, false));
  EQ_RETURN_IF_ERROR(Between("--workers", o.workers, 1, kMostWorkers));
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
  EQ_RETURN_IF_ERROR(RefuseIgnored(options));
  EQ_RETURN_IF_ERROR(ParseFaults(options.inject).status());
  if (!options.dump_gradients.empty()) {
    // The data says how many steps epochs are, so some steps prove too large only then.
    constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
    const int64_t steps = options.steps > 0 ? options.steps : kUnknown;
    EQ_RETURN_IF_ERROR(ParseDumpSteps(options.dump_gradients, steps).status());
  }
  EQ_RETURN_IF_ERROR(ValidateAlgorithm(options));
  EQ_RETURN_IF_ERROR(ValidateCodec(options));
  EQ_RETURN_IF_ERROR(ValidatePartition(options));
  EQ_RETURN_IF_ERROR(ValidateVariance(options));
  EQ_RETURN_IF_ERROR(ValidateCompute(options));
  return ValidateLink(options);
}

}  // namespace elastiquant
