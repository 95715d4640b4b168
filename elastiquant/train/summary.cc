#include "elastiquant/train/summary.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "elastiquant/base/json_text.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/runs/file.h"
#include "elastiquant/train/algorithm.h"
#include "elastiquant/train/fingerprint.h"

namespace elastiquant {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

json DescribePartition(const std::string& spec, const Shares* shares) {
  json partition = {{"spec", spec}};
  if (shares == nullptr) return partition;
  partition["volumes"] = shares->Volumes();
  partition["classes"] = shares->classes;
  return partition;
}

std::string HowExchanged(const TrainOptions& options, std::shared_ptr<const Codec> codec,
                         int world_size) {
  const Algorithm algorithm = ParseAlgorithm(options.algorithm).value();
  if (algorithm.is_gossip()) return "gossip";
  if (algorithm.is_lazy()) return "all-gather";  // of the messages of those that send
  if (algorithm.kind == AlgorithmKind::kQuantisedData) {
    return algorithm.central != 0 ? "samples to worker 0" : "samples to all";
  }
  return ExchangeOf(options, std::move(codec), world_size).value().Describe();
}

}  // namespace

Status WriteSummary(const TrainOptions& options, const RunInfo& info, const RunFacts& facts,
                    const RunRecord& record) {
  json summary = record.Summary(facts.coordinates, facts.world_size, facts.shared_steps);
  summary["model"] = options.model;
  summary["data"] = options.data;
  summary["partition"] = DescribePartition(options.partition, facts.shares);
  summary["algorithm"] = options.algorithm;
  summary["rounds"] = facts.rounds;
  summary["uploads"] = facts.uploads;
  summary["losses"] = facts.losses;
  if (!facts.policy.is_null()) {
    summary["policy"] = facts.policy;
    if (!options.bits_policy.empty()) summary["policy"]["bits"] = options.bits_policy;
    if (options.bits_policy.empty()) summary["policy"]["ratio"] = RatioOf(options);
  }
  if (!facts.samples.is_null()) summary["samples"] = facts.samples;
  if (!facts.network.is_null()) summary.update(facts.network);
  summary["optimizer"] = options.optimizer;
  summary["metric"] = MetricOf(options);
  const std::shared_ptr<const Codec> codec = MakeCodec(options.codec).value();
  // Where samples travel and nothing else, --codec has nothing to do.
  const bool has_samples_only = SendsSamplesOnly(options);
  summary["codec"] = has_samples_only ? options.samples : options.codec;
  summary["codec_spec"] = has_samples_only ? options.samples : codec->spec();
  summary["exchange"] = HowExchanged(options, codec, facts.world_size);
  summary["world_size"] = facts.world_size;
  summary["batch"] = options.batch;
  summary["seed"] = options.seed;
  summary["link"] = options.link.empty() ? json(nullptr) : json(options.link);
  summary["coordinates"] = facts.coordinates;
  summary["steps_per_epoch"] = facts.steps_per_epoch;
  summary["replicas_identical"] = facts.replicas_identical;
  summary["weights_hash"] = fmt::format("{:016x}", facts.weights_hash);
  summary["options"] = Fingerprint(options, facts.world_size, facts.init, facts.edges);
  summary["command"] = info.command_line;
  summary["versions"] = {{"elastiquant", info.version}, {"torch", TORCH_VERSION}};
  summary["machine"] = DescribeMachine();
  summary["machine"]["threads"] = at::get_num_threads();
  const std::string text = JsonText(summary, 2) + "\n";
  const fs::path file = fs::path(options.out) / "summary.json";
  EQ_RETURN_IF_ERROR(WriteFileAtomically(file, AsBytes(text)));
  const json& accuracy = summary["test_accuracy"];
  fmt::print(
      "{}\n{} by {}: test accuracy {}, {:.2f} bits per coordinate, {:.4f} s per step\n",
      file.string(), summary["codec"].get<std::string>(),
      summary["exchange"].get<std::string>(),
      accuracy.is_null() ? "not measured" : fmt::format("{:.2f} %", accuracy.get<double>()),
      summary["bits_per_coordinate"].get<double>(),
      summary["seconds_per_step"].is_null() ? 0.0 : summary["seconds_per_step"].get<double>());
  return Status::Ok();
}

}  // namespace elastiquant
