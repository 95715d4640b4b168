// Deaths of real processes: the others end in time, with exit code 3, and name the right one.
#include "elastiquant/net/liveness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/c10d/testing.h"

namespace elastiquant {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTimeoutMs = 3000;
constexpr int kWorkers = 3;

class Workers : public testing::Test {
 protected:
  void Start(const std::string& mode) {
    const std::string port = std::to_string(FreePort());
    const std::string timeout = std::to_string(kTimeoutMs), size = std::to_string(kWorkers);
    for (int r = 0; r < kWorkers; ++r) {
      const std::string rank = std::to_string(r);
      out_.push_back(testing::TempDir() + "collective_worker." + std::to_string(getpid()) +
                     "." + rank);
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) {
        signal(SIGPIPE, SIG_DFL);  // or a test's parent might save the worker
        const int fd = open(out_.back().c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        execl(COLLECTIVE_WORKER, "collective_worker", port.c_str(), rank.c_str(), size.c_str(),
              timeout.c_str(), mode.c_str(), nullptr);
        _exit(127);
      }
      pids_.push_back(pid);
    }
  }

  void TearDown() override {
    for (size_t r = 0; r < pids_.size(); ++r) {
      if (pids_[r] > 0) {
        kill(pids_[r], SIGKILL);
        waitpid(pids_[r], nullptr, 0);
      }
      unlink(out_[r].c_str());
    }
  }

  std::string Output(size_t r) const {
    std::stringstream text;
    text << std::ifstream(out_[r]).rdbuf();
    return text.str();
  }

  void AwaitStepping() const {
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    for (size_t r = 0; r < pids_.size(); ++r) {
      while (Output(r).find("stepping") == std::string::npos) {
        ASSERT_LT(Clock::now(), deadline) << "worker " << r << " said: " << Output(r);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
  }

  // The exit code, or -1 if it still ran after `patience`.
  int Await(size_t r, std::chrono::milliseconds patience) {
    const auto deadline = Clock::now() + patience;
    int status = 0;
    while (waitpid(pids_[r], &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) return -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    pids_[r] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  void ExpectOthersBlame(size_t victim) {
    // The time-out, and generously for a busy machine.
    const auto patience = std::chrono::milliseconds(kTimeoutMs) + std::chrono::seconds(20);
    for (size_t r = 0; r < pids_.size(); ++r) {
      if (r == victim) continue;
      EXPECT_EQ(Await(r, patience), 3) << "worker " << r << " said: " << Output(r);
      EXPECT_NE(Output(r).find("stops: worker " + std::to_string(victim)), std::string::npos)
          << "worker " << r << " said: " << Output(r);
    }
  }

  void SignalOne(size_t victim, int signal) {
    Start("forever");
    AwaitStepping();
    if (HasFatalFailure()) return;
    ASSERT_EQ(kill(pids_[victim], signal), 0);
    ExpectOthersBlame(victim);
  }

  std::vector<pid_t> pids_;
  std::vector<std::string> out_;
};

TEST_F(Workers, AKilledWorkerIsNamed) { SignalOne(2, SIGKILL); }
TEST_F(Workers, AKilledStoreHostIsNamed) { SignalOne(0, SIGKILL); }
TEST_F(Workers, AFrozenWorkerIsNamed) { SignalOne(1, SIGSTOP); }
TEST_F(Workers, AFrozenStoreHostIsNamed) { SignalOne(0, SIGSTOP); }

TEST_F(Workers, AWorkerThatGivesUpIsNamedWithItsReason) {
  Start("fail");
  EXPECT_EQ(Await(1, std::chrono::seconds(60)), 1) << Output(1);
  ExpectOthersBlame(1);
  for (const size_t r : {0, 2}) {
    EXPECT_NE(Output(r).find("the data ran out"), std::string::npos) << Output(r);
  }
}

TEST_F(Workers, ThatEndAtDifferentTimesAreNotLost) {
  Start("finish");
  for (size_t r = 0; r < kWorkers; ++r) {
    EXPECT_EQ(Await(r, std::chrono::seconds(60)), 0) << "worker " << r << ": " << Output(r);
  }
}

}  // namespace
}  // namespace elastiquant
