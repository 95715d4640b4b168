#include "elastiquant/runs/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "elastiquant/c10d/tcp_store.h"
#include "elastiquant/net/crew/crew.h"
#include "elastiquant/net/store.h"
#include "elastiquant/runs/forked_process.h"
#include "elastiquant/runs/store_process.h"

namespace elastiquant {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHighestExitCode = 5;  // of those that say what is wrong (cli/command.h)

// Held from before the workers start, so that nobody can take its port.
Result<StoreProcess> HoldStore(uint16_t port) {
  auto store = StoreProcess::Start(port);
  if (store.status().code() != StatusCode::kUnavailable) return store;
  return InvalidArgument(store.status().message() +
                         "; give another with --port, or leave it out for a free one");
}

bool IsIgnored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Those that were ignored when this program started, as SIGHUP is under nohup, are left out.
// One that is watched is blocked, and the system delivers a blocked signal even if it is
// ignored.
sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!IsIgnored(signal)) sigaddset(&set, signal);
  }
  return set;
}

// In the new process.
int RunWorker(const LaunchOptions& options, int rank, uint16_t port, const sigset_t& old_mask) {
  sigprocmask(SIG_SETMASK, &old_mask, nullptr);
  if (rank != 0 && !options.go_on) {
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDOUT_FILENO);
  }
  return options.worker(rank, port);
}

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options) {}
  ~Launcher() {
    for (Worker& worker : workers_) {
      if (worker.running) kill(worker.pid, SIGKILL);
    }
    for (Worker& worker : workers_) {
      if (worker.running) waitpid(worker.pid, nullptr, 0);
    }
    sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }

  Status Run() {
    // Where it is ignored, as under some supervisors, the system does not tell of ends of
    // workers.
    signal(SIGCHLD, SIG_DFL);
    const sigset_t watched = WatchedSignals();
    sigprocmask(SIG_BLOCK, &watched, &old_mask_);
    EQ_ASSIGN_OR_RETURN(const StoreProcess store, HoldStore(options_.port));
    port_ = store.port();
    workers_.resize(static_cast<size_t>(options_.workers));
    for (size_t rank = 0; rank < workers_.size(); ++rank) EQ_RETURN_IF_ERROR(Start(rank));
    while (running_ > 0) {
      WaitForNews(watched);
      Reap();
      StartAgain();
      Stop();
    }
    return Verdict();
  }

 private:
  struct Worker {
    pid_t pid = 0;
    bool running = false;
    int status = 0;     // as waitpid gives it
    bool lost = false;  // and to be started again
    int restarts = 0;
  };

  Status Start(size_t rank) {
    const int r = static_cast<int>(rank);
    EQ_ASSIGN_OR_RETURN(workers_[rank].pid,
                        ForkProcess("elastiquant:" + std::to_string(rank),
                                    [&] { return RunWorker(options_, r, port_, old_mask_); }));
    workers_[rank].running = true;
    workers_[rank].status = 0;
    ++running_;
    return Status::Ok();
  }

  // Sleeps until a child ends, a signal comes or the next thing is due.
  void WaitForNews(const sigset_t& watched) {
    timespec limit{3600, 0};
    if (due_) {
      const auto left =
          std::chrono::duration_cast<std::chrono::nanoseconds>(*due_ - Clock::now());
      const int64_t nanoseconds = std::max<int64_t>(left.count(), 0);
      limit = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    }
    const int signal = sigtimedwait(&watched, nullptr, &limit);
    if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) return;
    interrupted_ = signal;
    SignalAll(signal);
    phase_ = Phase::kStopping;
    due_ = Clock::now() + options_.grace;
  }

  void Reap() {
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      if (!worker.running || waitpid(worker.pid, &worker.status, WNOHANG) != worker.pid)
        continue;
      worker.running = false;
      --running_;
      const bool by_itself = phase_ != Phase::kStopping && phase_ != Phase::kKilled;
      if (options_.go_on && by_itself) {
        TakeLoss(rank);
        continue;
      }
      if (worker.status == 0 && by_itself && !left_) left_ = rank;
      if (worker.status == 0 && phase_ == Phase::kRunning) {
        phase_ = Phase::kLeaving;
        due_ = Clock::now() + options_.linger;
      }
      if (worker.status != 0 && (phase_ == Phase::kRunning || phase_ == Phase::kLeaving)) {
        phase_ = Phase::kNoticing;
        due_ = Clock::now() + options_.notice;
      }
      if (worker.status != 0 && !culprit_ && !IsConsequence(worker)) culprit_ = rank;
      if (phase_ == Phase::kStopping && !stopped_) stopped_ = rank;
      if (phase_ == Phase::kKilled && !stuck_) stuck_ = rank;
    }
  }

  // With go_on: when the run is over all should end soon; before, the others go on.
  void TakeLoss(size_t rank) {
    const auto store = ConnectTcpStore("127.0.0.1", port_, CrewPrefix(""), options_.notice);
    if (store.ok()) {
      if (const auto end = HowTheRunEnded(**store); end.ok()) end_ = *end;
    }
    lost_ = rank;
    workers_[rank].lost = end_ == RunEnd::kNotYet && IsLoss(workers_[rank]);
    if (end_ == RunEnd::kNotYet || phase_ != Phase::kRunning) return;
    phase_ = Phase::kLeaving;
    due_ = Clock::now() + options_.linger;
  }

  // It was killed, crashed, or ended as no worker of this program does that says what is wrong.
  static bool IsLoss(const Worker& worker) {
    if (WIFSIGNALED(worker.status)) return true;
    const int code = WEXITSTATUS(worker.status);
    return code == 0 || code > kHighestExitCode;
  }

  // One that cannot be started again leaves the others alone.
  void StartAgain() {
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      // If it was the last one, there is nobody left whom it could join.
      if (!std::exchange(worker.lost, false) || running_ == 0 || phase_ != Phase::kRunning) {
        continue;
      }
      const std::string what = WhatHappened(rank);
      if (worker.restarts == options_.restarts) {
        std::fprintf(stderr, "elastiquant: %s, for the %dth time: not starting it again\n",
                     what.c_str(), worker.restarts + 1);
        continue;
      }
      ++worker.restarts;
      std::fprintf(stderr, "elastiquant: %s: starting it again (%d of %d)\n", what.c_str(),
                   worker.restarts, options_.restarts);
      const Status started = Start(rank);
      if (!started.ok()) std::fprintf(stderr, "elastiquant: %s\n", started.message().c_str());
    }
  }

  // It ended because it was told to, by another's loss or by us.
  bool IsConsequence(const Worker& worker) const {
    if (WIFEXITED(worker.status)) return WEXITSTATUS(worker.status) == kPeerLostExitCode;
    return phase_ == Phase::kStopping || phase_ == Phase::kKilled;
  }

  void Stop() {
    if (running_ == 0 || !due_ || Clock::now() < *due_) return;
    if (phase_ == Phase::kNoticing || phase_ == Phase::kLeaving) {
      SignalAll(SIGTERM);
      phase_ = Phase::kStopping;
      due_ = Clock::now() + options_.grace;
    } else {
      SignalAll(SIGKILL);  // a stopped process takes no other
      phase_ = Phase::kKilled;
      due_.reset();
    }
  }

  void SignalAll(int signal) {
    for (const Worker& worker : workers_) {
      if (worker.running) kill(worker.pid, signal);
    }
  }

  Status Verdict() const {
    if (interrupted_ != 0) {
      return Unavailable("stopped by " + SignalName(interrupted_));
    }
    if (end_ == RunEnd::kWell) return Status::Ok();
    if (const auto code = CommonExitCode()) {
      return {CodeOfExit(*code), "all workers ended with exit code " + std::to_string(*code) +
                                     ", for the reason given above"};
    }
    if (culprit_ || lost_) return Describe(culprit_ ? *culprit_ : *lost_);
    if (stuck_) {
      return Unavailable("worker " + std::to_string(*stuck_) +
                         " did not answer and had to be killed; the others have ended");
    }
    // All that failed did so because they had lost another worker. If one ended well by itself,
    // it is the cause, even if others were seen to end before it: they may notice the loss
    // before the launcher sees that it has ended.
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      if (workers_[rank].status == 0) continue;
      if (left_) return LeftEarly(*left_);
      return stopped_ ? EndedLate(*stopped_) : Describe(rank);
    }
    return Status::Ok();
  }

  static Status LeftEarly(size_t rank) {
    return Unavailable("worker " + std::to_string(rank) +
                       " ended, with exit code 0, before the run was over; the others were "
                       "stopped");
  }

  static Status EndedLate(size_t rank) {
    return Unavailable("worker " + std::to_string(rank) +
                       " did not end in time and had to be stopped; the others have ended");
  }

  // An error that the workers agreed on is no single one's.
  std::optional<int> CommonExitCode() const {
    const int status = workers_.front().status;
    const auto same = [&](const Worker& worker) { return worker.status == status; };
    if (status == 0 || !WIFEXITED(status) || !std::ranges::all_of(workers_, same)) return {};
    return WEXITSTATUS(status);
  }

  static std::string SignalName(int signal) {
    const char* name = sigabbrev_np(signal);
    return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
  }

  std::string WhatHappened(size_t rank) const {
    const int status = workers_[rank].status;
    const std::string who = "worker " + std::to_string(rank);
    if (WIFSIGNALED(status)) return who + " was killed by " + SignalName(WTERMSIG(status));
    return who + " ended with exit code " + std::to_string(WEXITSTATUS(status));
  }

  Status Describe(size_t rank) const {
    const int status = workers_[rank].status;
    const std::string others = options_.go_on         ? "; none of the others could go on"
                               : options_.workers > 1 ? "; the others were stopped"
                                                      : "";
    const StatusCode code =
        WIFSIGNALED(status) ? StatusCode::kUnavailable : CodeOfExit(WEXITSTATUS(status));
    return {code, WhatHappened(rank) + others};
  }

  // kLeaving: one has ended well, and all should soon. kNoticing: one has failed, the others
  // may say what they saw. kStopping: they were told to stop. kKilled: they were made to.
  enum class Phase { kRunning, kLeaving, kNoticing, kStopping, kKilled };

  LaunchOptions options_;
  uint16_t port_ = 0;  // of the store
  std::vector<Worker> workers_;
  int running_ = 0;
  Phase phase_ = Phase::kRunning;
  std::optional<Clock::time_point> due_;
  std::optional<size_t> left_;     // the first to end well, without being told to
  std::optional<size_t> culprit_;  // the first to fail of itself
  std::optional<size_t> lost_;     // with go_on: the last to end of itself
  RunEnd end_ = RunEnd::kNotYet;   // likewise: of the run
  std::optional<size_t> stopped_;  // the first to end because we told it to
  std::optional<size_t> stuck_;    // the first that only SIGKILL could end
  int interrupted_ = 0;
  sigset_t old_mask_{};
};

}  // namespace

Status LaunchWorkers(const LaunchOptions& options) { return Launcher(options).Run(); }

StatusCode CodeOfExit(int exit_code) {
  switch (exit_code) {
    case 2:
      return StatusCode::kInvalidArgument;
    case kPeerLostExitCode:
      return StatusCode::kUnavailable;
    case 4:
      return StatusCode::kCorruptData;
    case 5:
      return StatusCode::kNonFinite;
    default:
      return StatusCode::kInternal;
  }
}

}  // namespace elastiquant
