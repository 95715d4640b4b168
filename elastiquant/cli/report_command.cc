// `report`: compares training runs. The tables and plots are made by the Python package
// python/elastiquant_report, which this command finds and becomes.
#include <memory>
#include <vector>

#include "elastiquant/cli/command.h"
#include "elastiquant/cli/python_package.h"

namespace elastiquant::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;
  std::string python;
  std::string title;
  std::string per = "step";
  bool no_plots = false;
};

Status RunReport(const ReportOptions& options) {
  // In one word, as a value may begin with a dash.
  std::vector<std::string> words = {"--out=" + options.out, "--per=" + options.per};
  if (!options.title.empty()) words.push_back("--title=" + options.title);
  if (options.no_plots) words.push_back("--no-plots");
  words.push_back("--");
  words.insert(words.end(), options.runs.begin(), options.runs.end());
  return RunPythonPackage("elastiquant_report", options.python, words);
}

constexpr char kReportExample[] =
    "  elastiquant report runs/fp32 runs/elastic4 --out runs/report\n"
    "The first run (or the first whose codec is fp32) is what the others are compared with.\n"
    "Writes report.md, report.json, report.csv, and each plot as PNG and SVG.";

}  // namespace

Command MakeReportCommand(CLI::App& program) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* app = AddSubcommand(program, "report", "Compare training runs: table and plots",
                                kReportExample);
  app->add_option("RUN", options->runs, "Folders written by `elastiquant train --out`")
      ->required();
  app->add_option("--out", options->out, "Folder to write to, which is created if need be")
      ->required();
  app->add_option("--title", options->title,
                  "Title of the report: what its runs have in common");
  app->add_option("--per", options->per, "What the table's seconds are for: step or epoch")
      ->check(CLI::IsMember({"step", "epoch"}))
      ->capture_default_str();
  AddPythonOption(app, "", &options->python);
  app->add_flag("--no-plots", options->no_plots,
                "Write tables only, for which matplotlib is not needed");
  return {app, [options] { return RunReport(*options); }};
}

}  // namespace elastiquant::cli
