#include "elastiquant/cli/python_package.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>

#include "elastiquant/cli/file.h"

namespace elastiquant::cli {
namespace {

namespace fs = std::filesystem;

// Looks for `relative` in the folder of this executable and in those above it, so that it is
// found from a build tree (build/release/bin) as well as from an installation (bin).
fs::path FindAbove(const fs::path& relative) {
  std::error_code error;
  fs::path folder = ThisProgram().parent_path();
  if (folder.empty()) folder = fs::current_path();
  while (true) {
    if (fs::exists(folder / relative, error)) return folder / relative;
    if (folder == folder.root_path() || folder.empty()) return {};
    folder = folder.parent_path();
  }
}

Result<std::string> FindPackage(const std::string& package) {
  for (const char* place : {"python", "share/elastiquant/python"}) {
    const fs::path found = FindAbove(fs::path(place) / package);
    if (!found.empty()) return found.string();
  }
  return NotFound("the Python package " + package +
                  " is neither in python/ nor in share/elastiquant/python of a folder above "
                  "this program");
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

}  // namespace

fs::path ThisProgram() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);  // an empty path if that fails
}

void AddPythonOption(CLI::App* app, const std::string& what_for, std::string* python) {
  app->add_option("--python", *python,
                  "Python with matplotlib" + what_for +
                      "; default: .venv/bin/python above this program, else python3");
}

Status RunPythonPackage(const std::string& package, const std::string& python,
                        const std::vector<std::string>& arguments) {
  EQ_ASSIGN_OR_RETURN(std::string folder, FindPackage(package));
  std::vector<std::string> words = {FindPython(python), std::move(folder)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return Exec(words);
}

Status DrawReport(const std::string& package, const std::string& python,
                  const std::string& report, const fs::path& plot) {
  const bool is_picture = plot.extension() == ".png" || plot.extension() == ".svg";
  const std::string stem = (is_picture ? fs::path(plot).replace_extension() : plot).string();
  const std::string file = stem + ".json";
  EQ_RETURN_IF_ERROR(WriteFile(file, {AsBytes(std::span<const char>(report))}));
  std::fflush(stdout);
  return RunPythonPackage(package, python, {file, "--out", stem});
}

}  // namespace elastiquant::cli
