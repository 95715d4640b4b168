#include "elastiquant/runs/store_process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "elastiquant/c10d/tcp_store.h"
#include "elastiquant/net/store.h"
#include "elastiquant/runs/forked_process.h"

namespace elastiquant {
namespace {

// What the new process says through a pipe: this, and the words of an error behind it.
struct Report {
  StatusCode code = StatusCode::kOk;
  uint16_t port = 0;
};

void Say(int pipe, const Report& report, const std::string& words) {
  std::string bytes(reinterpret_cast<const char*>(&report), sizeof(report));
  bytes += words;
  // Less than a pipe holds, so that it is written as a whole. If nobody reads it, the process
  // that wanted the store has died, and this one is about to.
  if (write(pipe, bytes.data(), bytes.size()) < 0) _exit(1);
  close(pipe);
}

std::string ReadAll(int pipe) {
  std::string bytes;
  char part[512];
  for (ssize_t n = 1; n != 0;) {
    n = read(pipe, part, sizeof(part));
    if (n > 0) bytes.append(part, static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  return bytes;
}

int HostStore(uint16_t port, int pipe) {
  // A terminal sends Ctrl-C to all of a run's processes; the others still need the store then.
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  auto store = HostTcpStore(port, Reach::kThisMachine);
  if (!store.ok()) {
    Say(pipe, {.code = store.status().code()}, store.status().message());
    return 1;
  }
  Say(pipe, {.port = (*store)->port()}, "");
  while (true) pause();
}

}  // namespace

Result<StoreProcess> StoreProcess::Start(uint16_t port) {
  int pipes[2];
  if (pipe(pipes) != 0) {
    return IoError(std::string("cannot open a pipe: ") + std::strerror(errno));
  }
  const auto pid = ForkProcess("rendezvous", [&] {
    close(pipes[0]);
    return HostStore(port, pipes[1]);
  });
  close(pipes[1]);
  const std::string said = pid.ok() ? ReadAll(pipes[0]) : "";
  close(pipes[0]);
  if (!pid.ok()) return pid.status();
  StoreProcess process(*pid, 0);
  if (said.size() < sizeof(Report)) {
    return IoError("the process of the rendezvous store ended before it served");
  }
  Report report;
  std::memcpy(&report, said.data(), sizeof(report));
  if (report.code != StatusCode::kOk) return Status(report.code, said.substr(sizeof(report)));
  process.port_ = report.port;
  return process;
}

StoreProcess::StoreProcess(StoreProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), port_(other.port_) {}

StoreProcess::~StoreProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace elastiquant
