#include "elastiquant/base/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace elastiquant {
namespace {

TEST(StandardStreams, ThatAreClosedAreOpenedSoThatNoOtherFileGetsTheirNumber) {
  const auto start = [] {
    close(STDIN_FILENO);
    close(STDERR_FILENO);
    OpenClosedStreams();
    const bool all_open = fcntl(STDIN_FILENO, F_GETFD) >= 0 &&
                          fcntl(STDOUT_FILENO, F_GETFD) >= 0 &&
                          fcntl(STDERR_FILENO, F_GETFD) >= 0;
    const int other = open("/dev/zero", O_RDONLY);
    std::_Exit(all_open && other > STDERR_FILENO ? 7 : 1);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(7), "");
}

TEST(StandardStreams, WhatCannotBeWrittenToStdoutFails) {
  const auto end = [](const char* file, int exit_code) {
    if (std::freopen(file, "w", stdout) == nullptr) std::_Exit(99);
    std::fputs("a result", stdout);
    std::_Exit(ExitCodeOnceWritten(exit_code));
  };
  EXPECT_EXIT(end("/dev/null", 0), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(end("/dev/null", 3), testing::ExitedWithCode(3), "");
  EXPECT_EXIT(end("/dev/full", 0), testing::ExitedWithCode(1),
              "cannot write to stdout: No space");
  EXPECT_EXIT(end("/dev/full", 3), testing::ExitedWithCode(3),
              "cannot write to stdout: No space");
}

TEST(StandardStreams, AWarningThatCannotBeWrittenDoesNoHarm) {
  const auto warn = [](const char* file) {
    if (file != nullptr && std::freopen(file, "w", stderr) == nullptr) std::_Exit(99);
    Warn("it is late");
    std::_Exit(0);
  };
  EXPECT_EXIT(warn(nullptr), testing::ExitedWithCode(0), "warning: it is late\n");
  EXPECT_EXIT(warn("/dev/full"), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace elastiquant
