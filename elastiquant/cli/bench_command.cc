// `bench`: how fast, how small and how exact codecs are on this machine.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "elastiquant/cli/codec_bench.h"
#include "elastiquant/cli/command.h"
#include "elastiquant/cli/compute_options.h"
#include "elastiquant/cli/npy.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/kernels/targets.h"

namespace elastiquant::cli {
namespace {

struct BenchCommandOptions {
  std::vector<std::string> codecs;
  size_t elements = 25'000'000;  // 100 MB: beyond every cache
  std::string input;
  ComputeOptions compute;
  BenchOptions bench;
  bool json = false;
  bool list_targets = false;
};

// What is shown when no codec is named: each cost and gain once.
std::vector<std::string> DefaultCodecs() {
  return {"fp32",
          "fp16",
          "elastic:bits=4,levels=uniform",
          "elastic:bits=4,levels=exp,p=0.5",
          "elastic:bits=4",
          "elastic:bits=8",
          "elastic:bits=4|rans",
          "elastic:bits=4|elias"};
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

 private:
  size_t width_ = 5;
};

Result<std::vector<float>> Input(const BenchCommandOptions& options) {
  if (options.input.empty()) return GaussianVector(options.elements, options.bench.seed);
  EQ_ASSIGN_OR_RETURN(NpyArray array, ReadNpy(options.input));
  if (array.values.empty() || array.values.size() > kMaxFrameElements) {
    return InvalidArgument(fmt::format("{} has {} elements; 1 to {} are needed", options.input,
                                       array.values.size(), kMaxFrameElements));
  }
  return std::move(array.values);
}

void ListTargets() {
  for (const std::string& target : SimdTargets()) fmt::print("{}\n", target);
}

Status Measure(const BenchCommandOptions& options) {
  EQ_RETURN_IF_ERROR(ApplyTarget(options.compute));
  const std::vector<std::string> specs =
      options.codecs.empty() ? DefaultCodecs() : options.codecs;
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
    EQ_ASSIGN_OR_RETURN(const BenchResult result, bench.Run(*codecs[i], options.bench));
    table ? table->Print(specs[i], result) : results.push_back(ToJson(result));
  }
  if (options.json) {
    const nlohmann::ordered_json report = {{"input", InputName(options)},
                                           {"elements", values.size()},
                                           {"threads", options.compute.threads},
                                           {"target", CurrentSimdTarget()},
                                           {"results", results}};
    fmt::print("{}\n", report.dump(2));
  }
  return Status::Ok();
}

constexpr char kExample[] =
    "  elastiquant bench\n"
    "  elastiquant bench --codec elastic:bits=4 --codec 'elastic:bits=4|rans' --json\n"
    "  elastiquant bench --codec elastic:bits=4 --input gradient.npy\n"
    "  elastiquant bench --list-targets\n"
    "Every repetition runs memcpy, encode, decode-add and decode one after the other over the\n"
    "same warm buffers; medians are shown.";

}  // namespace

Command MakeBenchCommand(CLI::App& program) {
  auto options = std::make_shared<BenchCommandOptions>();
  CLI::App* app =
      AddSubcommand(program, "bench", "Measure codecs: speed, size and error", kExample);
  app->add_option("--codec", options->codecs,
                  "Codec to measure; may be repeated. Default: a selection")
      ->take_all();
  auto* elements =
      app->add_option("--elements", options->elements, "Length of the Gaussian vector")
          ->check(CLI::Range(size_t{1}, kMaxFrameElements))
          ->capture_default_str();
  app->add_option("--input", options->input, "Measure on this .npy file, such as a gradient")
      ->excludes(elements);
  AddComputeOptions(app, &options->compute);
  app->add_option("--repetitions", options->bench.repetitions,
                  "Repetitions; 0: as many as fit in a second or so, at least 5")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app->add_option("--seed", options->bench.seed, "Seed of the vector and of the rounding")
      ->capture_default_str();
  app->add_flag("--json", options->json, "A JSON object");
  app->add_flag("--list-targets", options->list_targets,
                "Print the SIMD targets of this machine, best first, one a line");
  return {app, [options] {
            if (!options->list_targets) return Measure(*options);
            ListTargets();
            return Status::Ok();
          }};
}

}  // namespace elastiquant::cli
