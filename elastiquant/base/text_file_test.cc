#include "elastiquant/base/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace elastiquant {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ReadTextFile, ReturnsWhatTheFileHolds) {
  const std::string path = testing::TempDir() + "/a text file";
  std::ofstream(path, std::ios::binary) << "0 1\r\n\n1 2";
  EXPECT_EQ(ReadTextFile(path).value(), "0 1\r\n\n1 2");
  std::ofstream(path, std::ios::trunc).close();
  EXPECT_EQ(ReadTextFile(path).value(), "");
  std::filesystem::remove(path);
}

TEST(ReadTextFile, RefusesWhatIsNoFile) {
  const auto of = [](const std::string& path) { return ReadTextFile(path).status(); };
  EXPECT_EQ(of("/no/such/file").code(), StatusCode::kNotFound);
  EXPECT_THAT(of("/no/such/file").message(), HasSubstr("'/no/such/file'"));
  EXPECT_EQ(of(testing::TempDir()).code(), StatusCode::kNotFound);
  EXPECT_THAT(of(testing::TempDir()).message(), HasSubstr("is a folder"));
}

TEST(WordsOf, LeavesCommentsOut) {
  EXPECT_THAT(WordsOf(" 0\t3  0.25 # the slow one"), ElementsAre("0", "3", "0.25"));
  EXPECT_THAT(WordsOf("a#b"), ElementsAre("a"));
  EXPECT_TRUE(WordsOf("").empty());
  EXPECT_TRUE(WordsOf("  # 0 1").empty());
}

}  // namespace
}  // namespace elastiquant
