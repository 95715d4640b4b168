// `report`: compares training runs. The tables and plots are made by the Python package
// python/elastiquant_report, which this command finds and becomes.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "elastiquant/cli/command.h"

namespace elastiquant::cli {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;
  std::string python;
  std::string title;
  std::string per = "step";
  bool no_plots = false;
};

// Looks for `relative` in the folder of this executable and in those above it, so that it is
// found from a build tree (build/release/bin) as well as from an installation (bin).
fs::path FindAbove(const fs::path& relative) {
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) folder = fs::current_path();
  while (true) {
    if (fs::exists(folder / relative, error)) return folder / relative;
    if (folder == folder.root_path() || folder.empty()) return {};
    folder = folder.parent_path();
  }
}

Result<std::string> FindReportPackage() {
  for (const char* place :
       {"python/elastiquant_report", "share/elastiquant/python/elastiquant_report"}) {
    const fs::path found = FindAbove(place);
    if (!found.empty()) return found.string();
  }
  return NotFound(
      "the Python package elastiquant_report is neither in python/ nor in "
      "share/elastiquant/python of a folder above this program");
}

std::string FindPython(const std::string& given) {
  if (!given.empty()) return given;
  const fs::path found = FindAbove(".venv/bin/python");
  return found.empty() ? "python3" : found.string();
}

Status Exec(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return NotFound("cannot start the Python interpreter " + words[0] + ": " +
                  std::strerror(errno) + ". Give one with --python, or run `make setup`");
}

Status RunReport(const ReportOptions& options) {
  EQ_ASSIGN_OR_RETURN(std::string package, FindReportPackage());
  std::vector<std::string> words = {
      FindPython(options.python), package, "--out", options.out, "--per", options.per};
  if (!options.title.empty()) words.insert(words.end(), {"--title", options.title});
  if (options.no_plots) words.push_back("--no-plots");
  words.push_back("--");
  words.insert(words.end(), options.runs.begin(), options.runs.end());
  return Exec(words);
}

constexpr char kExample[] =
    "  elastiquant report runs/fp32 runs/elastic4 --out runs/report\n"
    "The first run (or the first whose codec is fp32) is what the others are compared with.\n"
    "Writes report.md, report.json, report.csv, and each plot as PNG and SVG.";

}  // namespace

Command MakeReportCommand(CLI::App& program) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* app =
      AddSubcommand(program, "report", "Compare training runs: table and plots", kExample);
  app->add_option("RUN", options->runs, "Folders written by `elastiquant train --out`")
      ->required();
  app->add_option("--out", options->out, "Folder to write into; made if it is not there")
      ->required();
  app->add_option("--title", options->title, "What the runs have in common, for the report");
  app->add_option("--per", options->per, "What the table's seconds are for: step or epoch")
      ->check(CLI::IsMember({"step", "epoch"}))
      ->capture_default_str();
  app->add_option("--python", options->python,
                  "Python with matplotlib; default: .venv/bin/python above this program, "
                  "else python3");
  app->add_flag("--no-plots", options->no_plots, "Tables only: needs no matplotlib");
  return {app, [options] { return RunReport(*options); }};
}

}  // namespace elastiquant::cli
