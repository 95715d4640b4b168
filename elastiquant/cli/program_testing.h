// A fixture that runs the program as a script would: by its command line, exit code and output.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/cli/command.h"
#include "elastiquant/cli/file.h"
#include "elastiquant/cli/npy.h"
#include "elastiquant/cli/program.h"

namespace elastiquant::cli {

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

inline std::string TextOf(const std::string& path) {
  const auto bytes = ReadFile(path);
  return bytes.ok() ? std::string(bytes->begin(), bytes->end()) : "";
}

[[noreturn]] inline void BecomeProgram(const std::string& line, const std::string& out,
                                       const std::string& err) {
  wordexp_t words;
  if (wordexp(line.c_str(), &words, WRDE_NOCMD) != 0 ||
      !std::freopen(out.c_str(), "w", stdout) || !std::freopen(err.c_str(), "w", stderr)) {
    std::_Exit(125);
  }
  LeaveProcess(RunProgram(static_cast<int>(words.we_wordc), words.we_wordv));
}

class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // One of its own: tests of other suites may have the same name.
    folder_ = ::testing::TempDir() + "program_test_XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr) << folder_;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name) const { return folder_ + "/" + name; }

  // `arguments` are words as a shell takes them: quote what needs it. The program runs in a
  // process that is forked from this one, because to load libtorch anew would take longer than
  // most commands.
  Outcome Run(const std::string& arguments) const {
    std::fflush(nullptr);  // or both processes would write what is buffered
    const pid_t pid = fork();
    if (pid == 0) BecomeProgram("elastiquant " + arguments, File("stdout"), File("stderr"));
    int status = -1;
    waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, TextOf(File("stdout")),
            TextOf(File("stderr"))};
  }
  // Each of the arguments of a subcommand is refused as wrong usage, in words that have these.
  void ExpectUsageErrors(const std::string& subcommand,
                         const std::vector<std::pair<std::string, std::string>>& cases) const {
    for (const auto& [arguments, words] : cases) {
      const Outcome run = Run(subcommand + " " + arguments);
      EXPECT_EQ(run.exit_code, kExitUsage) << arguments;
      EXPECT_THAT(run.err, ::testing::HasSubstr(words)) << arguments;
      EXPECT_EQ(run.out, "") << arguments;
    }
  }
  std::string Encode(const std::string& options, const std::string& name) const {
    const Outcome run =
        Run(fmt::format("encode {} {} {}", options, File("in.npy"), File(name)));
    EXPECT_EQ(run.exit_code, kExitDone) << run.err;
    return TextOf(File(name));
  }
  void WriteInput(size_t n) const {
    std::vector<float> values(n);
    const LaneKeys keys = MakeLaneKeys({42});
    for (size_t i = 0; i < n; ++i) {
      values[i] = UniformFloat(RandomBits(keys, static_cast<uint32_t>(i))) - 0.5f;
    }
    ASSERT_TRUE(WriteNpy(File("in.npy"), values).ok());
  }

  std::string folder_;
};

}  // namespace elastiquant::cli
