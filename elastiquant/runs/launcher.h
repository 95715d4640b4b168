// Starts the workers of a run on this machine and watches over them. If one fails, the others
// are stopped, or it is started again; if the launcher dies, so do they.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "elastiquant/base/status.h"

namespace elastiquant {

// The exit code of a worker that ends because another one was lost.
inline constexpr int kPeerLostExitCode = 3;

struct LaunchOptions {
  // What a worker does, in a process of its own, given its rank and the port of the store where
  // the workers of this machine meet. It returns the process's exit code.
  std::function<int(int rank, uint16_t store_port)> worker;
  int workers = 1;
  uint16_t port = 0;  // of the store where the workers meet; 0: a free one
  // How long the others may take to notice a loss and say so, before they are told to stop. One
  // that fails may itself end after those that have lost it: libtorch takes seconds to end on a
  // busy machine.
  std::chrono::milliseconds notice{5000};
  // How long the others may take to stop, before they are killed.
  std::chrono::milliseconds grace{3000};
  // How long the others may take to end after one worker has ended well.
  std::chrono::milliseconds linger{60000};
  // Whether the run goes on when a worker is lost (net/crew/crew.h). It is then started again,
  // `restarts` times at most, and the others are left alone until the crew says that the run
  // has ended.
  bool go_on = false;
  int restarts = 3;
};

// Hosts the store and runs each worker in a process that is forked from this one, which may
// have no other thread (forked_process.h). Workers share the memory of what is loaded here, and
// need not load it again, which takes a third of a second of a core for libtorch. Processes are
// called elastiquant:RANK. Worker 0 has this process's stdout, and with go_on all have; the
// others have only its stderr. SIGINT, SIGTERM and SIGHUP are passed on, unless they were
// ignored when it began (nohup). Returns when all have ended. Fails with InvalidArgument if the
// port is in use; with Unavailable, which names the worker and its signal, if a worker was
// lost; or else with the code that the exit code of the first worker to fail stands for. With
// go_on it is no error that workers were lost if the crew says that the run has ended well.
Status LaunchWorkers(const LaunchOptions& options);

// Returns the StatusCode that a worker's exit code (cli/command.h) stands for.
StatusCode CodeOfExit(int exit_code);

}  // namespace elastiquant
