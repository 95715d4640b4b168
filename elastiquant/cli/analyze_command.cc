// `analyze`: what codecs make of gradients: bits, error, bias, entropy, speed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "elastiquant/base/contains.h"
#include "elastiquant/base/json_number.h"
#include "elastiquant/base/json_text.h"
#include "elastiquant/cli/analyze_input.h"
#include "elastiquant/cli/codec_analysis.h"
#include "elastiquant/cli/codec_bench.h"
#include "elastiquant/cli/codec_catalogue.h"
#include "elastiquant/cli/command.h"
#include "elastiquant/cli/compute_options.h"
#include "elastiquant/cli/progress.h"
#include "elastiquant/cli/python_package.h"
#include "elastiquant/codec/elastic/adapt.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/kernels/targets.h"
#include "elastiquant/theory/rate_distortion.h"

namespace elastiquant::cli {
namespace {

using Json = nlohmann::ordered_json;

struct AnalyzeOptions {
  std::vector<std::string> inputs;
  std::vector<std::string> codecs;
  size_t gaussian = 0;
  bool rates = false;
  ComputeOptions compute;
  AnalysisOptions analysis;
  bool json = false;
  std::string plot;
  std::string python;
};

// One codec's line; an error in place of figures does not stop the others.
struct Row {
  std::string codec;  // as it was given
  std::shared_ptr<const Codec> made;
  std::string fitted;  // the spec that was measured, of a codec that adapts to gradients
  Result<Analysis> analysis;
};

Result<std::vector<AnalyzeInput>> Inputs(const AnalyzeOptions& options) {
  if (options.inputs.empty() && options.gaussian == 0) {
    return InvalidArgument("nothing to analyze: give .npy files, folders, or --gaussian N");
  }
  EQ_ASSIGN_OR_RETURN(std::vector<AnalyzeInput> inputs, ReadAnalyzeInputs(options.inputs));
  if (options.gaussian > 0) {
    inputs.push_back({"Gaussian", GaussianVector(options.gaussian, options.analysis.seed), {}});
  }
  return inputs;
}

Result<std::vector<std::string>> Specs(const AnalyzeOptions& options) {
  for (const std::string& spec : options.codecs) {
    EQ_RETURN_IF_ERROR(MakeCodec(spec).status());
  }
  std::vector<std::string> specs = options.codecs;
  if (!options.rates && !specs.empty()) return specs;
  for (const std::string& spec : options.rates ? RateSpecs() : DefaultSpecs()) {
    if (!Contains(specs, spec)) specs.push_back(spec);
  }
  return specs;
}

// By class, then by bits.
bool Before(const Row& a, const Row& b) {
  const auto key = [](const Row& row) {
    const double bits = row.analysis.ok() ? row.analysis->bits_per_coordinate : INFINITY;
    return std::tuple(row.made->codec_class(), bits,
                      row.analysis.ok() ? row.analysis->nmse : 0);
  };
  return key(a) < key(b);
}

// The codec for this very vector: with its shapes, and adapted to it if it does adapt.
Result<std::shared_ptr<const Codec>> Fitted(std::shared_ptr<const Codec> codec,
                                            const AnalyzeInput& input) {
  if (IsAdaptive(*codec)) {
    const std::span<const float> gradients[] = {input.values};
    EQ_ASSIGN_OR_RETURN(const std::string spec, AdaptSpec(*codec, gradients));
    return MakeCodec(spec);
  }
  if (input.shapes.empty()) return codec;
  return CodecForShapes(codec, input.shapes);
}

Result<std::vector<Row>> AnalyseAll(const AnalyzeOptions& options, const AnalyzeInput& input,
                                    const std::vector<std::string>& specs, Workspace& work) {
  std::vector<Row> rows;
  for (const std::string& spec : specs) {
    SayProgress(fmt::format("{}: {}/{} {}", input.name, rows.size() + 1, specs.size(), spec));
    EQ_ASSIGN_OR_RETURN(auto codec, MakeCodec(spec));
    EQ_ASSIGN_OR_RETURN(const auto fitted, Fitted(codec, input));
    Result<Analysis> analysis = Analyse(*fitted, input.values, options.analysis, work);
    rows.push_back({spec, std::move(codec), fitted->spec(), std::move(analysis)});
  }
  SayProgress("");
  std::ranges::stable_sort(rows, Before);
  return rows;
}

double Norm(std::span<const float> values) {
  double squares = 0;
  for (const float v : values) squares += static_cast<double>(v) * v;
  return std::sqrt(squares);
}

constexpr char kRowFormat[] =
    "{:<{}}  {:>7}  {:>7}  {:>9} {:>6}  {:>6}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}\n";

void PrintRow(const Row& row, size_t width) {
  if (!row.analysis.ok()) {
    fmt::print("{:<{}}  {}\n", row.codec, width, row.analysis.status().message());
    return;
  }
  const Analysis& a = *row.analysis;
  const double spread = a.nmse > 0 ? 100 * a.nmse_standard_error / a.nmse : 0;
  fmt::print(
      kRowFormat, row.codec, width, fmt::format("{:.3f}", a.bits_per_coordinate),
      a.entropy ? fmt::format("{:.3f}", *a.entropy) : "-", fmt::format("{:.4g}", a.nmse),
      fmt::format("±{:.1f}%", spread),
      a.nmse > 0
          ? fmt::format("{:.1f}", theory::DecibelsAboveLimit(a.nmse, a.bits_per_coordinate))
          : "-",
      fmt::format("{:.1f}", a.bias_z),
      fmt::format("{:.0f}%", 100 * std::max(0.0, a.bias_share)),
      fmt::format("{:.4f}", a.cosine), fmt::format("{:.2f}", a.encode_gigabytes_per_second),
      fmt::format("{:.2f}", a.decode_gigabytes_per_second));
}

void PrintText(const AnalyzeInput& input, const std::vector<Row>& rows) {
  size_t width = 11;
  for (const Row& row : rows) width = std::max(width, row.codec.size());
  const size_t tensors = input.shapes.size();
  fmt::print("{}: {} floats{}, norm {:.4g}\n\n", input.name, input.values.size(),
             tensors == 0 ? "" : fmt::format(" of {} tensors", tensors), Norm(input.values));
  fmt::print(kRowFormat, "codec", width, "bits", "entropy", "NMSE", "", "dB", "bias z", "bias",
             "cosine", "encode", "decode");
  std::optional<CodecClass> group;
  for (const Row& row : rows) {
    if (group != row.made->codec_class()) {
      group = row.made->codec_class();
      fmt::print("{}\n", CodecClassName(*group));
    }
    PrintRow(row, width);
  }
  fmt::print("\n");
}

constexpr char kLegend[] =
    "bits: of a coordinate, whole frames. entropy: of the decoded values, given their bucket.\n"
    "NMSE: mean of |Q(v)-v|^2/|v|^2 and its standard error. dB: NMSE above 1/(4^bits - 1), "
    "the\n"
    "limit of unbiased codes for iid Gaussian values. bias z: above 4, the error has a mean;\n"
    "bias: the share of the squared error that does not average out. encode, decode: GB/s of\n"
    "fp32. Codecs with a memory are shown at their first message, codecs that adapt to\n"
    "gradients after they have.\n";

Json ToJson(const Row& row) {
  Json json = {{"codec", row.codec},
               {"spec", row.made->spec()},
               {"class", CodecClassName(row.made->codec_class())}};
  if (row.fitted != row.made->spec()) json["fitted"] = row.fitted;
  if (!row.analysis.ok()) {
    json["error"] = row.analysis.status().message();
    return json;
  }
  const Analysis& a = *row.analysis;
  json["bits_per_coordinate"] = a.bits_per_coordinate;
  json["entropy"] = NumberOrNull(a.entropy);
  json["nmse"] = a.nmse;
  json["nmse_standard_error"] = a.nmse_standard_error;
  json["bias_z"] = a.bias_z;
  json["bias_share"] = a.bias_share;
  json["cosine"] = a.cosine;
  json["encode_gigabytes_per_second"] = a.encode_gigabytes_per_second;
  json["decode_gigabytes_per_second"] = a.decode_gigabytes_per_second;
  return json;
}

Json ToJson(const AnalyzeInput& input, const std::vector<Row>& rows) {
  auto results = Json::array();
  for (const Row& row : rows) results.push_back(ToJson(row));
  return {{"name", input.name},
          {"elements", input.values.size()},
          {"tensors", input.shapes.size()},
          {"norm", Norm(input.values)},
          {"results", results}};
}

Status Run(const AnalyzeOptions& options) {
  EQ_RETURN_IF_ERROR(ApplyTarget(options.compute));
  EQ_ASSIGN_OR_RETURN(const std::vector<std::string> specs, Specs(options));
  EQ_ASSIGN_OR_RETURN(const std::vector<AnalyzeInput> inputs, Inputs(options));
  Workspace work(options.compute.threads);
  auto analyses = Json::array();
  for (const AnalyzeInput& input : inputs) {
    EQ_ASSIGN_OR_RETURN(const std::vector<Row> rows, AnalyseAll(options, input, specs, work));
    if (!options.json) PrintText(input, rows);
    analyses.push_back(ToJson(input, rows));
  }
  const Json report = {{"draws", options.analysis.draws},
                       {"seed", options.analysis.seed},
                       {"threads", options.compute.threads},
                       {"target", CurrentSimdTarget()},
                       {"inputs", analyses}};
  const std::string text = JsonText(report, 2) + "\n";
  fmt::print("{}", options.json ? text : kLegend);
  if (options.plot.empty()) return Status::Ok();
  return DrawReport("elastiquant_rates", options.python, text, options.plot);
}

constexpr char kAnalyzeExample[] =
    "  elastiquant train --dump-gradients 1,50%,100% --out runs/fp32\n"
    "  elastiquant analyze runs/fp32/gradients\n"
    "  elastiquant analyze --codec dither:bits=2 --codec qsgdv:bits=4 gradient.npy --json\n"
    "  elastiquant analyze --rates --gaussian 1000000 --plot rates";

}  // namespace

Command MakeAnalyzeCommand(CLI::App& program) {
  auto options = std::make_shared<AnalyzeOptions>();
  CLI::App* app = AddSubcommand(program, "analyze",
                                "Measure what codecs make of gradients: bits, error, bias",
                                kAnalyzeExample);
  app->add_option("IN", options->inputs, ".npy files, or folders of them");
  app->add_option("--codec", options->codecs,
                  "Codec to measure; may be repeated. By default every registered one")
      ->take_all()
      ->allow_extra_args(false);
  app->add_flag("--rates", options->rates,
                "Measure every registered codec at all its usual rates, beside --codec");
  app->add_option("--gaussian", options->gaussian, "Measure on this many Gaussian values too")
      ->check(CLI::Range(size_t{1}, kMaxFrameElements));
  app->add_option("--draws", options->analysis.draws, "How often each vector is encoded")
      ->check(CLI::Range(2, 1'000'000))
      ->capture_default_str();
  app->add_option("--seed", options->analysis.seed, "Seed of the rounding and of --gaussian")
      ->capture_default_str();
  AddComputeOptions(app, &options->compute);
  app->add_flag("--json", options->json, "Print a JSON object");
  app->add_option(
      "--plot", options->plot,
      "Draw NMSE against bits: writes PLOT.json, and PLOT.png and .svg, one of each "
      "for every input");
  AddPythonOption(app, ", for --plot", &options->python);
  return {app, [options] { return Run(*options); }};
}

}  // namespace elastiquant::cli
