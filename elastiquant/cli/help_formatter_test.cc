#include "elastiquant/cli/help_formatter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

namespace elastiquant::cli {
namespace {

TEST(Wrapped, BreaksAtSpacesOnly) {
  EXPECT_EQ(Wrapped("", 10), "");
  EXPECT_EQ(Wrapped("one", 10), "one");
  EXPECT_EQ(Wrapped("ten chars.", 10), "ten chars.");
  EXPECT_EQ(Wrapped("eleven char", 10), "eleven\nchar");
  EXPECT_EQ(Wrapped("a unbreakable-word b", 5), "a\nunbreakable-word\nb");
}

TEST(Wrapped, KeepsBreaks) {
  EXPECT_EQ(Wrapped("a b:\nc d\ne", 10), "a b:\nc d\ne");
  EXPECT_EQ(Wrapped("a\n\nb", 10), "a\n\nb");
}

TEST(HelpFormatter, WrapsDescriptionsAndHidesWhatFlagsStandFor) {
  CLI::App app;
  app.formatter(std::make_shared<HelpFormatter>());
  bool flag = true;
  std::string words;
  for (int i = 0; i < 40; ++i) words += "word ";
  app.add_flag("--do,!--do-not", flag, words);
  const std::string help = app.help();
  EXPECT_NE(help.find("--do,--do-not  "), std::string::npos) << help;
  size_t longest = 0;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = help.find('\n', begin);
    longest = std::max(longest, std::min(end, help.size()) - begin);
  }
  EXPECT_LE(longest, kHelpColumns) << help;
  EXPECT_GT(longest, kHelpColumns - 6) << help;
}

}  // namespace
}  // namespace elastiquant::cli
