#include "elastiquant/runs/forked_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "elastiquant/base/standard_streams.h"

namespace elastiquant {
namespace {

[[noreturn]] void Become(const std::string& name, const std::function<int()>& body,
                         pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above took effect
  prctl(PR_SET_NAME, name.c_str());
  int code = 1;
  try {
    code = body();
  } catch (const std::exception& error) {  // libtorch and the standard library throw
    std::fprintf(stderr, "elastiquant: %s\n", error.what());
  }
  code = ExitCodeOnceWritten(code);
  std::fflush(nullptr);
  std::_Exit(code);  // static objects, and what atexit() was given, are the parent's to end
}

}  // namespace

Result<pid_t> ForkProcess(const std::string& name, const std::function<int()>& body) {
  std::fflush(nullptr);  // or both processes would write what is buffered
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(name, body, parent);
  if (pid < 0) return IoError("cannot start the process " + name + ": " + std::strerror(errno));
  return pid;
}

}  // namespace elastiquant
