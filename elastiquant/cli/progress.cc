#include "elastiquant/cli/progress.h"

#include <unistd.h>

#include <cstdio>

namespace elastiquant::cli {

void SayProgress(const std::string& words) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fputs(("\r\033[K" + words).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace elastiquant::cli
