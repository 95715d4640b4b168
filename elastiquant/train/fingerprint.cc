#include "elastiquant/train/fingerprint.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "elastiquant/base/json_text.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/data/partition.h"
#include "elastiquant/graph/graph.h"
#include "elastiquant/train/algorithm.h"

namespace elastiquant {
namespace {

// Adds what only AdamW has, and leaves out what only SGD has.
void AddAdamW(const TrainOptions& o, nlohmann::json* fingerprint) {
  fingerprint->erase("--momentum");
  fingerprint->erase("--nesterov");
  fingerprint->update({{"--optimizer", o.optimizer},
                       {"--beta1", o.beta1},
                       {"--beta2", o.beta2},
                       {"--epsilon", o.epsilon},
                       {"--metric", MetricOf(o)}});
  if (MetricOf(o) != "plain") (*fingerprint)["--exact-steps"] = o.exact_steps;
}

// What "auto" chooses is what counts; checkpoints from before there was a choice say "codec".
std::string ExchangeInFingerprint(const TrainOptions& o, int world_size) {
  const auto codec = MakeCodec(o.codec).value();
  const auto choice = ExchangeOf(o, codec, world_size);
  if (o.exchange != "auto" || !choice.ok()) return o.exchange;
  return choice->exchange ? choice->Describe() : "codec";
}

// Adds what only some algorithms have.
void AddAlgorithm(const TrainOptions& o, const std::string& edges,
                  nlohmann::json* fingerprint) {
  const Algorithm algorithm = ParseAlgorithm(o.algorithm).value();
  const bool has_fragments = TrainsAlone(o) || algorithm.kind == AlgorithmKind::kDelayed;
  nlohmann::json& all = *fingerprint;
  if (!IsAllReduce(o)) all["--algorithm"] = o.algorithm;
  if (has_fragments || algorithm.is_gossip()) all["--every"] = RoundOf(o);
  if (has_fragments) {
    all["--fragments"] = o.fragments;
    // Those of earlier versions had the layers in turn.
    if (o.fragments > 1) all["--fragments"] = fmt::format("{} of like size", o.fragments);
    if (o.every_growth > 0) all["--every-growth"] = o.every_growth;
    if (!o.every_later.empty()) all["--every-later"] = o.every_later;
  }
  if (algorithm.kind == AlgorithmKind::kSparsity) all["--ratio"] = RatioOf(o);
  if (algorithm.is_gossip()) {
    all["--graph"] = edges.empty() ? GraphOf(o) : edges;
    all["--gossip-step"] = o.gossip_step;
  }
  // With --on-loss go-on the workers of ad-psgd share the run's steps instead of making them
  // all.
  if (SharesSteps(o)) all["--on-loss"] = o.on_loss;
  if (algorithm.kind == AlgorithmKind::kQuantisedData) all["--samples"] = o.samples;
}

// How long the run is matters only to schedules that are stretched over it.
void AddSchedule(const TrainOptions& o, nlohmann::json* fingerprint) {
  nlohmann::json& all = *fingerprint;
  if (o.schedule == "wsd") all["--decay-part"] = o.decay_part;
  if (o.schedule == "constant") return;
  if (o.steps > 0) {
    all["--steps"] = o.steps;
  } else {
    all["--epochs"] = o.epochs;
  }
  if (o.schedule != "step") return;
  all["--milestones"] = o.milestones;
  all["--step-factor"] = o.step_factor;
}

}  // namespace

Result<std::string> DescribeEdges(const TrainOptions& o, int world_size) {
  const bool has_file =
      ParseAlgorithm(o.algorithm).value().is_gossip() && IsEdgeFile(GraphOf(o));
  if (!has_file) return std::string();
  EQ_ASSIGN_OR_RETURN(const auto graph,
                      Graph::Parse(GraphOf(o), static_cast<size_t>(world_size), o.seed));
  return fmt::format("a file of edges with the digest {:016x}", graph->Digest());
}

nlohmann::json Fingerprint(const TrainOptions& o, int world_size, const std::string& init,
                           const std::string& edges) {
  nlohmann::json fingerprint = {
      {"--model", o.model},
      {"--data", o.data},
      {"--codec", MakeCodec(o.codec).value()->spec()},
      {"--exact", o.exact},
      {"--exchange", ExchangeInFingerprint(o, world_size)},
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
  if (!init.empty()) fingerprint["--init"] = init;
  const Partition partition = ParsePartition(o.partition).value();
  if (!partition.is_iid()) fingerprint["--partition"] = SpecOf(partition);
  if (o.update != "sgd") fingerprint["--update"] = o.update;
  if (o.precision != "fp32") fingerprint["--precision"] = o.precision;
  if (!o.compute.empty()) {
    fingerprint["--compute"] = o.compute;
    fingerprint["--replay"] = o.replay;
  }
  if (!o.bits_policy.empty()) fingerprint["--bits-policy"] = o.bits_policy;
  if (o.clip_norm > 0) fingerprint["--clip-norm"] = o.clip_norm;
  if (!o.codec_down.empty()) {
    fingerprint["--codec-down"] = MakeCodec(o.codec_down).value()->spec();
  }
  // What is chosen follows the errors that are measured.
  if (o.bits_policy.starts_with("noise")) fingerprint["--measure-every"] = o.measure_every;
  AddAlgorithm(o, edges, &fingerprint);
  AddSchedule(o, &fingerprint);
  if (o.optimizer == "adamw") AddAdamW(o, &fingerprint);
  return fingerprint;
}

namespace {

const std::string kNotGiven = "not given";

// Says which entries differ, each in the words that `tell` has for its name and both its texts.
template <typename Tell>
std::string Differences(const nlohmann::json& a, const nlohmann::json& b, const Tell& tell) {
  nlohmann::json all = a;
  all.update(b);
  std::string differences;
  for (const auto& [key, unused] : all.items()) {
    const auto text = [&key = key](const nlohmann::json& options) {
      return options.contains(key) ? JsonText(options[key]) : kNotGiven;
    };
    if (text(a) == text(b)) continue;
    if (!differences.empty()) differences += "; ";
    differences += tell(key, text(a), text(b));
  }
  return differences;
}

}  // namespace

std::string CompareFingerprints(const nlohmann::json& saved, const nlohmann::json& now) {
  return Differences(saved, now, [](const auto& key, const auto& was, const auto& is) {
    return key + " was " + was + " and is " + is;
  });
}

nlohmann::json OptionsOfAll(const TrainOptions& o, int world_size, const std::string& edges) {
  nlohmann::json options = Fingerprint(o, world_size, "", edges);
  for (const char* own : {"--data", "--compute"}) options.erase(own);
  options.update({{"--steps", o.steps},
                  {"--epochs", o.steps > 0 ? 0 : o.epochs},
                  {"--generated-test", o.generated_test},
                  {"--replay", !o.replay.empty()},
                  {"--checkpoint-every", o.checkpoint_every},
                  {"--eval-every", o.eval_every},
                  {"--check-replicas", o.check_replicas},
                  {"--measure-every", o.measure_every},
                  {"--measure-variance", o.measure_variance},
                  {"--max-skipped", o.max_skipped},
                  {"--on-loss", o.on_loss},
                  {"--least-workers", o.least_workers}});
  return options;
}

Status CheckAlike(int worker, const nlohmann::json& others, const nlohmann::json& mine) {
  const std::string differences =
      Differences(others, mine, [](const auto& key, const auto& theirs, const auto& own) {
        if (theirs == kNotGiven) return key + " is " + own + ", which the others do not have";
        return key + " is " + own + " and not " + theirs;
      });
  if (differences.empty()) return Status::Ok();
  return InvalidArgument(
      fmt::format("worker {} was started with other options than the others: "
                  "{}. Start all workers alike",
                  worker, differences));
}

}  // namespace elastiquant
