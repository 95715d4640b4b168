// The Python packages of the project, which this program finds and becomes.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant::cli {

// Returns the file of this program, or an empty path where the system does not tell.
std::filesystem::path ThisProgram();

// Adds --python, whose value RunPythonPackage takes. `what_for` is empty, or as ", for --plot".
void AddPythonOption(CLI::App* app, const std::string& what_for, std::string* python);

// Becomes `python FOLDER_OF(package) arguments...`; returns only if that fails. The package is
// in python/ of a folder above this program, or in share/elastiquant/python of an installation.
// An empty `python` is .venv/bin/python in a folder above, else python3.
Status RunPythonPackage(const std::string& package, const std::string& python,
                        const std::vector<std::string>& arguments);

// Writes `report`, which is JSON, to PLOT.json, and becomes the package that draws it beside
// that. `plot` may end in .png or .svg, which is left out.
Status DrawReport(const std::string& package, const std::string& python,
                  const std::string& report, const std::filesystem::path& plot);

}  // namespace elastiquant::cli
