// The Python packages of the project, which this program finds and becomes.
#pragma once

#include <string>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant::cli {

// Becomes `python FOLDER_OF(package) arguments...`; returns only if that fails. The package is
// in python/ of a folder above this program, or in share/elastiquant/python of an installation.
// An empty `python` is .venv/bin/python in a folder above, else python3.
Status RunPythonPackage(const std::string& package, const std::string& python,
                        const std::vector<std::string>& arguments);

}  // namespace elastiquant::cli
