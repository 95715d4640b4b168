#include "elastiquant/train/fingerprint.h"

#include <nlohmann/json.hpp>

#include "elastiquant/codec/codec.h"
#include "elastiquant/data/partition.h"
#include "elastiquant/train/algorithm.h"

namespace elastiquant {
namespace {

// Adds what only AdamW has, and leaves out what only SGD has.
void PrintAdamW(const TrainOptions& o, nlohmann::json* print) {
  print->erase("--momentum");
  print->erase("--nesterov");
  print->update({{"--optimizer", o.optimizer},
                 {"--beta1", o.beta1},
                 {"--beta2", o.beta2},
                 {"--epsilon", o.epsilon},
                 {"--metric", MetricOf(o)}});
  if (MetricOf(o) != "plain") (*print)["--exact-steps"] = o.exact_steps;
}

// What "auto" chooses is what counts; checkpoints from before there was a choice say "codec".
std::string ExchangeInPrint(const TrainOptions& o, int world_size) {
  const auto codec = MakeCodec(o.codec).value();
  const auto choice = ExchangeOf(o, codec, world_size);
  if (o.exchange != "auto" || !choice.ok()) return o.exchange;
  return choice->exchange ? choice->Describe() : "codec";
}

}  // namespace

nlohmann::json Fingerprint(const TrainOptions& o, int world_size, const std::string& init) {
  nlohmann::json print = {
      {"--model", o.model},
      {"--data", o.data},
      {"--codec", MakeCodec(o.codec).value()->spec()},
      {"--exact", o.exact},
      {"--exchange", ExchangeInPrint(o, world_size)},
      {"--adapt-every", o.adapt_every},
      {"--bucket-kib", o.bucket_kib},
      {"--batch", o.batch},
      {"--seed", o.seed},
      {"--augment", o.augment},
      {"--generated-train", o.generated_train},
      {"--data-seed", o.data_seed},
      {"--image-size", o.image_size},
      {"--lr", o.learning_rate},
      {"--momentum", o.momentum},
      {"--weight-decay", o.weight_decay},
      {"--decay-1d", o.decay_1d},
      {"--nesterov", o.nesterov},
      {"--schedule", o.schedule},
      {"--warmup", o.warmup_steps},
      {"--workers", world_size},
  };
  if (!init.empty()) print["--init"] = init;
  const Partition partition = ParsePartition(o.partition).value();
  if (!partition.is_iid()) print["--partition"] = SpecOf(partition);
  if (o.update != "sgd") print["--update"] = o.update;
  if (o.precision != "fp32") print["--precision"] = o.precision;
  if (!IsAllReduce(o)) print["--algorithm"] = o.algorithm;
  const Algorithm algorithm = ParseAlgorithm(o.algorithm).value();
  if (TrainsAlone(o) || algorithm.kind == AlgorithmKind::kDelayed) {
    print["--every"] = RoundOf(o);
    print["--fragments"] = o.fragments;
    if (o.every_growth > 0) print["--every-growth"] = o.every_growth;
    if (!o.every_later.empty()) print["--every-later"] = o.every_later;
  }
  if (ParseAlgorithm(o.algorithm)->kind == AlgorithmKind::kSparsity) {
    print["--ratio"] = RatioOf(o);
  }
  if (algorithm.is_gossip()) {
    print["--every"] = RoundOf(o);
    print["--graph"] = GraphOf(o);
    print["--gossip-step"] = o.gossip_step;
  }
  if (!o.compute.empty()) {
    print["--compute"] = o.compute;
    print["--replay"] = o.replay;
  }
  if (NeedsShares(o)) print["--samples"] = o.samples;
  if (!o.bits_policy.empty()) print["--bits-policy"] = o.bits_policy;
  if (o.optimizer == "adamw") PrintAdamW(o, &print);
  if (o.clip_norm > 0) print["--clip-norm"] = o.clip_norm;
  if (o.schedule == "wsd") print["--decay-part"] = o.decay_part;
  if (!o.codec_down.empty()) {
    print["--codec-down"] = MakeCodec(o.codec_down).value()->spec();
  }
  // How long the run is matters only to schedules that are stretched over it.
  if (o.schedule != "constant")
    print[o.steps > 0 ? "--steps" : "--epochs"] = o.steps > 0 ? o.steps : o.epochs;
  if (o.schedule == "step") {
    print["--milestones"] = o.milestones;
    print["--step-factor"] = o.step_factor;
  }
  return print;
}

std::string CompareFingerprints(const nlohmann::json& saved, const nlohmann::json& now) {
  nlohmann::json all = saved;
  all.update(now);
  std::string differences;
  for (const auto& [key, unused] : all.items()) {
    const auto text = [&key = key](const nlohmann::json& print) {
      return print.contains(key) ? print[key].dump() : std::string("not given");
    };
    if (text(saved) == text(now)) continue;
    if (!differences.empty()) differences += "; ";
    differences += key + " was " + text(saved) + " and is " + text(now);
  }
  return differences;
}

}  // namespace elastiquant
