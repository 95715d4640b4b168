// `bench`: how fast, how small and how exact codecs are on this machine.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "elastiquant/base/contains.h"
#include "elastiquant/base/json_text.h"
#include "elastiquant/cli/codec_bench.h"
#include "elastiquant/cli/codec_catalogue.h"
#include "elastiquant/cli/command.h"
#include "elastiquant/cli/compute_options.h"
#include "elastiquant/cli/npy.h"
#include "elastiquant/cli/progress.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/kernels/targets.h"

namespace elastiquant::cli {
namespace {

struct BenchCommandOptions {
  std::vector<std::string> codecs;
  bool all = false;
  std::optional<size_t> elements;
  std::string input;
  ComputeOptions compute;
  BenchOptions bench;
  bool json = false;
  bool list_targets = false;
};

constexpr size_t kGaussianElements = 25'000'000;  // 100 MB: beyond every cache

std::vector<std::string> Specs(const BenchCommandOptions& options) {
  std::vector<std::string> specs = options.codecs;
  if (!options.all && !specs.empty()) return specs;
  for (const std::string& spec : DefaultSpecs()) {
    if (!Contains(specs, spec)) specs.push_back(spec);
  }
  return specs;
}

nlohmann::ordered_json ToJson(const Speed& speed) {
  return {{"gigabytes_per_second", speed.gigabytes_per_second},
          {"ratio_to_memcpy", speed.ratio_to_memcpy}};
}

nlohmann::ordered_json ToJson(const BenchResult& result) {
  return {{"codec", result.spec},
          {"class", CodecClassName(result.codec_class)},
          {"frame_bytes", result.frame_bytes},
          {"bits_per_coordinate", result.bits_per_coordinate},
          {"nmse", result.nmse},
          {"memcpy_gigabytes_per_second", result.memcpy_gigabytes_per_second},
          {"encode", ToJson(result.encode)},
          {"decode", ToJson(result.decode)},
          {"decode_add", ToJson(result.decode_add)}};
}

std::string InputName(const BenchCommandOptions& options) {
  return options.input.empty() ? "Gaussian" : options.input;
}

// A row at a time, since a codec takes seconds.
class TextTable {
 public:
  TextTable(const BenchCommandOptions& options, size_t elements,
            const std::vector<std::string>& specs) {
    for (const std::string& spec : specs) width_ = std::max(width_, spec.size());
    fmt::print("{} floats ({:.0f} MB), {}; target {}, threads {}\n", elements,
               static_cast<double>(elements) * sizeof(float) / 1e6, InputName(options),
               CurrentSimdTarget(), options.compute.threads);
    fmt::print(
        "Speeds in GB/s of fp32; in brackets the ratio to memcpy of the same buffer.\n\n");
    fmt::print("{:<{}}  {:>8}  {:>9}  {:>7}  {:>14}  {:>14}  {:>14}\n", "codec", width_,
               "bits/co.", "NMSE", "memcpy", "encode", "decode", "decode-add");
  }
  // `spec` as it was given: the canonical one names every default.
  void Print(const std::string& spec, const BenchResult& r) const {
    const auto cell = [](const Speed& speed) {
      return fmt::format("{:.2f} ({:.2f}x)", speed.gigabytes_per_second, speed.ratio_to_memcpy);
    };
    fmt::print("{:<{}}  {:>8.3f}  {:>9.3g}  {:>7.2f}  {:>14}  {:>14}  {:>14}\n", spec, width_,
               r.bits_per_coordinate, r.nmse, r.memcpy_gigabytes_per_second, cell(r.encode),
               cell(r.decode), cell(r.decode_add));
    std::fflush(stdout);
  }
  void PrintError(const std::string& spec, const Status& status) const {
    fmt::print("{:<{}}  {}\n", spec, width_, status.message());
  }

 private:
  size_t width_ = 5;
};

// A file's values as often one after the other as `elements` asks for.
Result<std::vector<float>> Input(const BenchCommandOptions& options) {
  if (options.input.empty()) {
    return GaussianVector(options.elements.value_or(kGaussianElements), options.bench.seed);
  }
  EQ_ASSIGN_OR_RETURN(NpyArray array, ReadNpy(options.input));
  if (array.values.empty() || array.values.size() > kMaxFrameElements) {
    return InvalidArgument(fmt::format("{} has {} elements; 1 to {} are needed", options.input,
                                       array.values.size(), kMaxFrameElements));
  }
  std::vector<float>& values = array.values;
  const size_t period = values.size();
  values.resize(options.elements.value_or(period));
  for (size_t i = period; i < values.size(); ++i) values[i] = values[i - period];
  return std::move(values);
}

void ListTargets() {
  for (const std::string& target : SimdTargets()) fmt::print("{}\n", target);
}

Status Measure(const BenchCommandOptions& options) {
  EQ_RETURN_IF_ERROR(ApplyTarget(options.compute));
  const std::vector<std::string> specs = Specs(options);
  std::vector<std::shared_ptr<const Codec>> codecs;
  for (const std::string& spec : specs) {
    EQ_ASSIGN_OR_RETURN(codecs.emplace_back(), MakeCodec(spec));
  }
  EQ_ASSIGN_OR_RETURN(const std::vector<float> values, Input(options));
  CodecBench bench(values, options.compute.threads);
  std::unique_ptr<TextTable> table;
  if (!options.json) table = std::make_unique<TextTable>(options, values.size(), specs);
  auto results = nlohmann::ordered_json::array();
  for (size_t i = 0; i < codecs.size(); ++i) {
    SayProgress(fmt::format("{}/{} {}", i + 1, specs.size(), specs[i]));
    const Result<BenchResult> result = bench.Run(*codecs[i], options.bench);
    SayProgress("");
    // What the user did not name must not stop the rest.
    if (!result.ok() && i >= options.codecs.size()) {
      table ? table->PrintError(specs[i], result.status())
            : results.push_back(
                  {{"codec", codecs[i]->spec()}, {"error", result.status().message()}});
      continue;
    }
    EQ_RETURN_IF_ERROR(result.status());
    table ? table->Print(specs[i], *result) : results.push_back(ToJson(*result));
  }
  if (options.json) {
    const nlohmann::ordered_json report = {{"input", InputName(options)},
                                           {"elements", values.size()},
                                           {"threads", options.compute.threads},
                                           {"target", CurrentSimdTarget()},
                                           {"results", results}};
    fmt::print("{}\n", JsonText(report, 2));
  }
  return Status::Ok();
}

constexpr char kBenchExample[] =
    "  elastiquant bench\n"
    "  elastiquant bench --codec elastic:bits=4 --codec 'elastic:bits=4|rans' --json\n"
    "  elastiquant bench --all --input gradient.npy --elements 25000000\n"
    "  elastiquant bench --list-targets\n"
    "Every repetition runs memcpy, encode, decode-add and decode one after the other over the\n"
    "same warm buffers; medians are shown.";

}  // namespace

Command MakeBenchCommand(CLI::App& program) {
  auto options = std::make_shared<BenchCommandOptions>();
  CLI::App* app =
      AddSubcommand(program, "bench", "Measure codecs: speed, size and error", kBenchExample);
  app->add_option("--codec", options->codecs,
                  "Codec to measure; may be repeated. By default every registered one")
      ->take_all();
  app->add_flag("--all", options->all, "Measure every registered codec, beside --codec");
  app->add_option("--elements", options->elements,
                  "Length of the vector; a file's values are repeated. Default: 25000000 "
                  "Gaussian values (100 MB), or the file as it is")
      ->check(CLI::Range(size_t{1}, kMaxFrameElements));
  app->add_option("--input", options->input, "Measure on this .npy file, such as a gradient");
  AddComputeOptions(app, &options->compute);
  app->add_option("--repetitions", options->bench.repetitions,
                  "How often each codec is measured; 0: as often as fits into about a second, "
                  "but at least 5 times")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app->add_option("--seed", options->bench.seed, "Seed of the vector and of the rounding")
      ->capture_default_str();
  app->add_flag("--json", options->json, "Print a JSON object");
  app->add_flag("--list-targets", options->list_targets,
                "Print the SIMD targets of this machine, best first, one a line");
  return {app, [options] {
            if (!options->list_targets) return Measure(*options);
            ListTargets();
            return Status::Ok();
          }};
}

}  // namespace elastiquant::cli
