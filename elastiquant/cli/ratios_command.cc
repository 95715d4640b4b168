// `ratios`: what each worker sends of its update when workers have unequal amounts of data.
#include "elastiquant/policy/ratios.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/number.h"
#include "elastiquant/base/split.h"
#include "elastiquant/cli/command.h"

namespace elastiquant::cli {
namespace {

struct RatiosOptions {
  std::string rule = "monotone";
  double ratio = 0.1;
  std::string given_volumes;
  std::vector<double> volumes;  // what is given, once read
  double exponent = policy::kDagcExponent;
  bool json = false;

  bool is_absolute() const { return rule == "absolute"; }
};

Result<std::vector<double>> Compute(const RatiosOptions& o) {
  if (o.is_absolute()) return policy::RelativeThresholds(o.volumes, o.exponent);
  const auto rule = policy::ParseRatioRule(o.rule);
  if (!rule.ok()) return InvalidArgument("--rule: " + rule.status().message() + ", absolute");
  return policy::WorkerRatios(*rule, o.ratio, o.volumes, o.exponent);
}

void PrintTable(const RatiosOptions& o, const std::vector<double>& values) {
  const double total = std::accumulate(o.volumes.begin(), o.volumes.end(), 0.0);
  fmt::print("{:>6}  {:>12}  {:>8}  {:>10}\n", "worker", "volume", "share",
             o.is_absolute() ? "threshold" : "ratio");
  for (size_t i = 0; i < values.size(); ++i) {
    fmt::print("{:>6}  {:>12.6g}  {:>7.2f}%  {:>10.5f}\n", i, o.volumes[i],
               100 * o.volumes[i] / total, values[i]);
  }
  const double mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  if (o.is_absolute()) {
    fmt::print("\nthreshold: of a coordinate's magnitude, relative to the common one\n");
  } else {
    fmt::print("\nratio: of the coordinates that the worker sends; their mean is {:.5f}\n",
               mean);
  }
}

// CLI11 would leave out an empty number, and all that follow would be another worker's.
Result<std::vector<double>> VolumesOf(const std::string& text) {
  std::vector<double> volumes;
  for (const std::string_view part : SplitAt(text, ',')) {
    double volume = 0;
    if (!ParseNumber(part, &volume)) {
      return InvalidArgument("--volumes: '" + std::string(part) + "' in '" + text +
                             "' is not a number; give one for each worker: V1,V2,...");
    }
    volumes.push_back(volume);
  }
  return volumes;
}

Status Run(RatiosOptions options) {
  EQ_ASSIGN_OR_RETURN(options.volumes, VolumesOf(options.given_volumes));
  EQ_ASSIGN_OR_RETURN(const std::vector<double> values, Compute(options));
  if (options.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"ratios", values}}.dump(2));
  } else {
    PrintTable(options, values);
  }
  return {};
}

constexpr char kRatiosExample[] =
    "  elastiquant ratios --volumes 700,250,50\n"
    "  elastiquant ratios --rule published --ratio 0.1 --volumes 700,250,50 --json\n"
    "  elastiquant ratios --rule absolute --volumes 700,250,50 --exponent 0.5";

}  // namespace

Command MakeRatiosCommand(CLI::App& program) {
  auto options = std::make_shared<RatiosOptions>();
  CLI::App* app = AddSubcommand(program, "ratios",
                                "Divide a budget of coordinates among workers by their data",
                                kRatiosExample);
  app->add_option("--rule", options->rule,
                  "uniform: the same ratio for all; published: DAGC-R as its authors' code has "
                  "it; monotone: by a power of the volume; absolute: DAGC-A, thresholds in "
                  "place of ratios")
      ->capture_default_str();
  app->add_option("--ratio", options->ratio,
                  "Coordinates that workers send in the mean, above 0 and at most 1")
      ->capture_default_str();
  app->add_option("--volumes", options->given_volumes, "Samples of each worker: V1,V2,...")
      ->required();
  app->add_option("--exponent", options->exponent,
                  "Power of the volume; default: 2/3, which published always has");
  app->add_flag("--json", options->json, "Print a JSON object");
  return {app, [options] { return Run(*options); }};
}

}  // namespace elastiquant::cli
