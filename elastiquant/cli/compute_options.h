// The options --threads and --target, which several subcommands share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "elastiquant/base/status.h"

namespace elastiquant::cli {

struct ComputeOptions {
  int threads = 1;
  std::string target;  // empty: the best that this machine runs
};

void AddComputeOptions(CLI::App* app, ComputeOptions* options);

// Makes all kernels use options.target. An unknown one is an error that lists the known.
Status ApplyTarget(const ComputeOptions& options);

}  // namespace elastiquant::cli
