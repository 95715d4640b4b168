#include "elastiquant/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace elastiquant::cli {

void SayProgress(const std::string& words) {
  if (isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r\033[K{}", words);
  std::fflush(stderr);
}

}  // namespace elastiquant::cli
