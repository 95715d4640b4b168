#include "elastiquant/cli/compute_options.h"

#include "elastiquant/kernels/targets.h"

namespace elastiquant::cli {

void AddComputeOptions(CLI::App* app, ComputeOptions* options) {
  app->add_option("--threads", options->threads, "Threads; the result does not depend on it")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--target", options->target,
                  "SIMD target to run, of `elastiquant bench --list-targets`; the result does "
                  "not depend on it");
}

Status ApplyTarget(const ComputeOptions& options) {
  return options.target.empty() ? Status::Ok() : UseSimdTarget(options.target);
}

}  // namespace elastiquant::cli
