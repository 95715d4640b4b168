#include "elastiquant/base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace elastiquant {

void OpenClosedStreams() {
  // open() takes the lowest number that is free, which is that of the closed stream.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) < 0) (void)open("/dev/null", O_RDWR);
  }
}

int ExitCodeOnceWritten(int exit_code) {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return exit_code;
  std::fprintf(stderr, "elastiquant: cannot write to stdout: %s\n", std::strerror(errno));
  return exit_code == 0 ? 1 : exit_code;
}

void Warn(const std::string& line) { std::fputs(("warning: " + line + "\n").c_str(), stderr); }

}  // namespace elastiquant
