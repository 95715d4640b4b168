#include "elastiquant/runs/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>

#include "elastiquant/c10d/tcp_store.h"
#include "elastiquant/net/crew/crew.h"

namespace elastiquant {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

// As workers do that have finished a run which goes on without those that were lost.
void SayThatTheRunIsOver(uint16_t port) {
  const auto store = ConnectTcpStore("127.0.0.1", port, CrewPrefix(""), 10s);
  if (store.ok()) (void)EndTheRun(**store, /*well=*/true);
}

// Plays the part of worker `rank` in a script like "3@0 0@200": worker 0 ends with exit code 3
// at once, and worker 1 with exit code 0 after 200 ms. A negative code is a signal that it
// sends itself: -9 kills it, -19 stops it.
int Play(const std::string& script, int rank, uint16_t store_port) {
  std::istringstream parts(script);
  int code = 0, milliseconds = 0;
  char at = 0;
  for (; rank >= 0; --rank) parts >> code >> at >> milliseconds;
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  if (code < 0) kill(getpid(), -code);
  if (code == 0) SayThatTheRunIsOver(store_port);
  _exit(code);  // without what this program of tests does when it ends
}

LaunchOptions Quick(int workers) {
  LaunchOptions options;
  options.workers = workers;
  options.notice = 1500ms;
  options.grace = 500ms;
  options.linger = 1000ms;
  return options;
}

Status Launch(int workers, const std::string& script, bool go_on = false) {
  LaunchOptions options = Quick(workers);
  options.worker = [&](int rank, uint16_t port) { return Play(script, rank, port); };
  options.go_on = go_on;
  return LaunchWorkers(options);
}

void ExpectEnd(const Status& status, StatusCode code, const std::string& words) {
  EXPECT_EQ(status.code(), code);
  EXPECT_THAT(status.message(), HasSubstr(words));
}

TEST(LauncherTest, AllEndWell) { EXPECT_TRUE(Launch(3, "0@0 0@100 0@0").ok()); }

// As under nohup.
TEST(LauncherTest, ASignalThatIsIgnoredStopsNothing) {
  const auto before = signal(SIGHUP, SIG_IGN);
  std::thread hang_up([] {
    std::this_thread::sleep_for(300ms);
    kill(getpid(), SIGHUP);
  });
  EXPECT_TRUE(Launch(2, "0@2000 0@2000").ok());
  hang_up.join();
  signal(SIGHUP, before);
}

// As under a supervisor that does not want to hear of its own children.
TEST(LauncherTest, EndsWhereSignalsOfChildrenWereIgnored) {
  signal(SIGCHLD, SIG_IGN);
  EXPECT_TRUE(Launch(2, "0@0 0@100").ok());
}

TEST(LauncherTest, NamesTheOneThatWasKilledThoughOthersEndBefore) {
  ExpectEnd(Launch(3, "3@0 3@0 -9@300"), StatusCode::kUnavailable,
            "worker 2 was killed by SIGKILL");
}

TEST(LauncherTest, NamesTheOneThatLeftThoughOthersAreSeenToEndBefore) {
  ExpectEnd(Launch(3, "3@0 3@0 0@300"), StatusCode::kUnavailable,
            "worker 2 ended, with exit code 0, before");
}

TEST(LauncherTest, NamesTheOneThatLeftFirst) {
  ExpectEnd(Launch(3, "0@0 3@300 3@300"), StatusCode::kUnavailable,
            "worker 0 ended, with exit code 0, before");
}

TEST(LauncherTest, AnErrorOfAllIsNoSingleOnes) {
  ExpectEnd(Launch(2, "5@0 5@100"), StatusCode::kNonFinite,
            "all workers ended with exit code 5");
}

TEST(LauncherTest, TheCodeOfTheOneThatFailedOfItself) {
  ExpectEnd(Launch(3, "3@0 4@100 3@0"), StatusCode::kCorruptData,
            "worker 1 ended with exit code 4");
}

TEST(LauncherTest, OneThatIsStuckIsKilledAndNamed) {
  ExpectEnd(Launch(2, "3@0 -19@0"), StatusCode::kUnavailable,
            "worker 1 did not answer and had to be killed");
}

// The launcher must not tell of its own SIGTERM as if it were the cause.
TEST(LauncherTest, OneThatEndsLateIsStoppedAndNamed) {
  ExpectEnd(Launch(3, "3@0 3@0 1@60000"), StatusCode::kUnavailable,
            "worker 2 did not end in time and had to be stopped; the others have ended");
}

// The others live for long enough for four starts, on a busy machine too.
TEST(LauncherTest, GoesOnWithoutThoseThatAreKilledAndStartsThemAgain) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Launch(3, "-9@0 0@8000 0@8000", /*go_on=*/true).ok());
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("worker 0 was killed by SIGKILL: starting it again (1 of 3)"));
  EXPECT_THAT(said,
              HasSubstr("worker 0 was killed by SIGKILL, for the 4th time: not starting"));
}

TEST(LauncherTest, GoingOnIsOverWhenTheRunIs) {
  EXPECT_TRUE(Launch(3, "-19@0 0@100 3@0", /*go_on=*/true).ok());
}

TEST(LauncherTest, NobodyCanGoOnIfAllAreKilled) {
  ExpectEnd(Launch(2, "-9@0 -9@0", /*go_on=*/true), StatusCode::kUnavailable,
            "was killed by SIGKILL; none of the others could go on");
}

TEST(LauncherTest, WhatAWorkerThrowsIsItsFailureAlone) {
  LaunchOptions options = Quick(2);
  options.worker = [](int rank, uint16_t) {
    if (rank == 1) throw std::runtime_error("no memory is left");
    _exit(3);
    return 0;
  };
  ExpectEnd(LaunchWorkers(options), StatusCode::kInternal, "worker 1 ended with exit code 1");
}

}  // namespace
}  // namespace elastiquant
