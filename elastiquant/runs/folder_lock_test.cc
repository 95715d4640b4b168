#include "elastiquant/runs/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace elastiquant {
namespace {

using namespace std::chrono_literals;

TEST(FolderLock, IsHeldByOneAtATime) {
  const std::string folder = testing::TempDir();
  std::optional<FolderLock> first = FolderLock::Take(folder, 0ms).value();
  const auto second = FolderLock::Take(folder, 30ms);
  EXPECT_EQ(second.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(second.status().message(), testing::HasSubstr("give another --out"));
  first.reset();
  EXPECT_TRUE(FolderLock::Take(folder, 0ms).ok());
  EXPECT_TRUE(FolderLock::Take(folder, 0ms).ok()) << "the one above is gone";
  EXPECT_EQ(FolderLock::Take(folder + "/nowhere", 0ms).status().code(), StatusCode::kIo);
}

TEST(FolderLock, IsGivenBackByAProcessThatIsKilled) {
  const std::string folder = testing::TempDir();
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const auto lock = FolderLock::Take(folder, 0ms);
    const char said = lock.ok() ? 'y' : 'n';
    if (write(pipes[1], &said, 1) != 1) std::_Exit(1);
    while (true) pause();
  }
  char said = 0;
  ASSERT_EQ(read(pipes[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  EXPECT_FALSE(FolderLock::Take(folder, 0ms).ok());
  kill(pid, SIGKILL);
  EXPECT_TRUE(FolderLock::Take(folder, 10s).ok());
  waitpid(pid, nullptr, 0);
  close(pipes[0]);
  close(pipes[1]);
}

}  // namespace
}  // namespace elastiquant
