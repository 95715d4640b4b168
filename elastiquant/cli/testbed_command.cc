// `testbed`: rebuilds published experiments with unequal devices on shared air. That is the
// work of the Python package python/elastiquant_testbed, which this command finds and becomes.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/cli/command.h"
#include "elastiquant/cli/python_package.h"

namespace elastiquant::cli {
namespace {

struct TestbedOptions {
  std::string experiment;
  std::string out;
  std::string data = "generated";
  std::string precision = "fp32";
  std::string device = "cpu";
  int jobs = 1;
  std::string python;
  std::string minutes, known, testbed;  // if given
  bool quick = false;
};

Status RunTestbed(const TestbedOptions& options) {
  std::vector<std::string> words = {"run", options.experiment};
  const std::pair<const char*, std::string> given[] = {
      {"out", options.out},
      {"data", options.data},
      {"precision", options.precision},
      {"device", options.device},
      {"jobs", std::to_string(options.jobs)},
      {"program", ThisProgram().string()},
      {"minutes", options.minutes},
      {"known", options.known},
      {"testbed", options.testbed},
  };
  for (const auto& [option, value] : given) {
    // In one word, as a value may begin with a dash.
    if (!value.empty()) words.push_back("--" + std::string(option) + "=" + value);
  }
  if (options.quick) words.push_back("--quick");
  return RunPythonPackage("elastiquant_testbed", options.python, words);
}

// CLI11 takes NaN and infinity for numbers, and compares NaN with the ends of a range in vain.
std::string NotMinutes(const std::string& text) {
  double minutes = 0;
  if (CLI::detail::lexical_cast(text, minutes) && std::isfinite(minutes) && minutes >= 0) {
    return "";
  }
  return text + " is not a number of minutes, 0 or more";
}

constexpr char kTestbedExample[] =
    "  sudo elastiquant testbed run table3 --quick --out runs/testbed\n"
    "Writes NAME.json, NAME.md and plots to the folder. Measurements are kept there, too,\n"
    "so that an experiment that was stopped goes on where it was.";

}  // namespace

Command MakeTestbedCommand(CLI::App& program) {
  auto options = std::make_shared<TestbedOptions>();
  CLI::App* app = AddSubcommand(
      program, "testbed", "Rebuild published experiments on emulated devices and networks",
      kTestbedExample);
  app->require_subcommand(1);
  CLI::App* run = app->add_subcommand("run", "Run an experiment, or what is missing of it");
  run->add_option("EXPERIMENT", options->experiment,
                  "table3, table4, curves, dagc, levels or choco")
      ->required()
      ->check(CLI::IsMember({"table3", "table4", "curves", "dagc", "levels", "choco"}));
  run->add_option("--out", options->out, "Folder to write to, which is created if need be")
      ->required();
  run->add_option(
         "--data", options->data,
         "Images that train, in all but table3: 'generated', or a folder with CIFAR-10")
      ->capture_default_str();
  run->add_option("--precision", options->precision,
                  "What matrices are multiplied in where an experiment trains: bf16 is faster "
                  "where the processor has instructions for it; either takes a run in what it "
                  "was made in before, or else in what this machine is faster in")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16", "either"}));
  run->add_option("--device", options->device,
                  "Where models are trained: cuda needs the Python package elastiquant, and "
                  "does table4 and choco")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  run->add_option("--jobs", options->jobs,
                  "Runs at a time, in all but table3: for a GPU, which one run does not fill")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  run->add_flag("--quick", options->quick,
                "What takes a few minutes on two cores; the result says what was left out");
  run->add_option(
         "--minutes", options->minutes,
         "Begin no run after that, and show what is there; without it all runs are made")
      ->check(NotMinutes, "NONNEGATIVE");
  run->add_option(
         "--known", options->known,
         "A folder whose NAME.runs.jsonl has runs made before, which are not made again")
      ->check(CLI::ExistingDirectory);
  run->add_option("--testbed", options->testbed,
                  "A TOML file with devices and their network, for table3; without it those of "
                  "the sources")
      ->check(CLI::ExistingFile);
  AddPythonOption(run, "", &options->python);
  return {app, [options] { return RunTestbed(*options); }};
}

}  // namespace elastiquant::cli
