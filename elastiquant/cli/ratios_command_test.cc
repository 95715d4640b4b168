#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "elastiquant/cli/program_testing.h"

namespace elastiquant::cli {
namespace {

using ::testing::HasSubstr;
using RatiosTest = ProgramTest;

TEST_F(RatiosTest, GivesEachRulesFiguresAsJson) {
  const struct {
    const char* arguments;
    std::vector<double> expected;
  } cases[] = {{"--rule published --ratio 0.1", {.14949, .07525, .07525}},
               {"--rule monotone --ratio 0.1", {.17905, .09013, .03082}},
               {"--rule monotone --ratio 0.1 --exponent 1", {.21, .075, .015}},
               {"--rule uniform --ratio 0.3", {.3, .3, .3}},
               {"--rule absolute --ratio 0.1", {.5585, 1.1095, 3.2443}}};
  for (const auto& c : cases) {
    const Outcome run = Run(fmt::format("ratios {} --volumes 70,25,5 --json", c.arguments));
    ASSERT_EQ(run.exit_code, kExitDone) << c.arguments << run.err;
    const auto ratios = nlohmann::json::parse(run.out).at("ratios");
    ASSERT_EQ(ratios.size(), 3u) << c.arguments;
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(ratios[i], c.expected[i], 1e-3 * c.expected[i]) << c.arguments;
    }
  }
}

TEST_F(RatiosTest, TableNamesWorkersAndWhatTheyGet) {
  const Outcome run = Run("ratios --volumes 700,250,50");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("0.179"));
  EXPECT_THAT(run.out, HasSubstr("70.00%"));
  EXPECT_THAT(run.out, HasSubstr("mean is 0.10000"));
  EXPECT_THAT(Run("ratios --rule absolute --volumes 700,250,50").out,
              HasSubstr("relative to the common one"));
}

TEST_F(RatiosTest, WrongValuesAreUsageErrorsThatSayWhatIsRight) {
  ExpectUsageErrors("ratios",
                    {{"", "--volumes is required"},
                     {"--volumes 3,x", "'x' in '3,x' is not a number"},
                     {"--volumes 700,,50", "'' in '700,,50' is not a number"},
                     {"--volumes 3,0", "above 0"},
                     {"--volumes 3,1 --ratio 0", "at most 1"},
                     {"--volumes 3,1 --ratio 2", "at most 1"},
                     {"--volumes 3,1 --rule greedy", "uniform, published, monotone, absolute"},
                     {"--volumes 3,1 --rule published --exponent 1", "rule monotone"},
                     {"--volumes 3,1 --exponent -1", "exponent"}});
}

}  // namespace
}  // namespace elastiquant::cli
