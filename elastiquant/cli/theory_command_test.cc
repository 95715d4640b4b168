#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "elastiquant/cli/program_testing.h"

namespace elastiquant::cli {
namespace {

using ::testing::HasSubstr;
using TheoryTest = ProgramTest;

TEST_F(TheoryTest, GivesTheFiguresAsJson) {
  const Outcome run = Run("theory --bits 4 --bucket 8192 --norm l2 --json");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  const auto report = nlohmann::json::parse(run.out);
  EXPECT_NEAR(report.at("p"), .407, .0011);
  EXPECT_NEAR(report.at("variance_bound"), .2583, 1e-3);
  EXPECT_NEAR(report.at("worst_case"), .2508, 1e-3);
  EXPECT_LE(report.at("lower_bound"), report.at("worst_case"));
  EXPECT_GE(report.at("lower_bound"), .98 * report.at("worst_case").get<double>());
  EXPECT_LT(report.at("minimax").at("worst_case"), report.at("worst_case"));
  EXPECT_GT(report.at("code_length_bound_bits"), 0.0);
  EXPECT_LT(report.at("measured_gaussian"), report.at("worst_case"));
  EXPECT_GT(report.at("measured_gaussian"), report.at("gaussian_limit"));
  EXPECT_EQ(report.at("levels").size(), 8u);
  EXPECT_FALSE(report.contains("prediction"));
}

TEST_F(TheoryTest, EveryFamilyAndNormHasATable) {
  for (const char* levels :
       {"exp", "exp --p 0.5", "uniform", "minimax", "0.1/0.4/1", "0.2,1"}) {
    for (const char* norm : {"l1", "l2", "linf"}) {
      const Outcome run =
          Run(fmt::format("theory --bits 3 --bucket 64 --levels {} --norm {}", levels, norm));
      ASSERT_EQ(run.exit_code, kExitDone) << levels << norm << run.err;
      EXPECT_THAT(run.out, HasSubstr("exact worst case"));
      EXPECT_THAT(run.out, HasSubstr("least of all level sets"));
    }
  }
  const Outcome other = Run("theory --bits 3 --bucket 64 --norm l3");
  ASSERT_EQ(other.exit_code, kExitDone) << other.err;
  EXPECT_THAT(other.out, ::testing::Not(HasSubstr("least of all level sets")));
  EXPECT_EQ(Run("theory --bits 2 --bucket 1").exit_code, kExitDone);
}

TEST_F(TheoryTest, MinimaxLevelsAreASpecThatCodecsTake) {
  const auto report =
      nlohmann::json::parse(Run("theory --levels minimax --bits 4 --norm l2 --json").out);
  EXPECT_NEAR(report.at("worst_case"), report.at("minimax").at("worst_case"), 1e-9);
  EXPECT_TRUE(report.at("p").is_null());
  const std::string spec = report.at("spec");
  const Outcome run = Run("analyze --gaussian 5120 --draws 8 --json --codec '" + spec + "'");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  const auto row = nlohmann::json::parse(run.out)["inputs"][0]["results"][0];
  EXPECT_LT(row.at("nmse"), report.at("worst_case"));
}

TEST_F(TheoryTest, PredictsAndRanksOverALink) {
  const std::string command =
      "theory --bits 4 --link 20mbit,10ms --workers 4 --parameters 100000 --target 0.05 ";
  const auto report = nlohmann::json::parse(Run(command + "--json").out);
  const auto& prediction = report.at("prediction");
  EXPECT_LT(prediction.at("setting").at("seconds"), prediction.at("fp32").at("seconds"));
  EXPECT_GE(prediction.at("setting").at("steps"), prediction.at("fp32").at("steps"));
  ASSERT_EQ(prediction.at("best").size(), 5u);
  EXPECT_LE(prediction["best"][0].at("seconds"), prediction.at("setting").at("seconds"));
  EXPECT_THAT(Run(command).out, HasSubstr("first to arrive"));
}

TEST_F(TheoryTest, WrongValuesAreUsageErrorsThatSayWhatIsRight) {
  ExpectUsageErrors("theory", {{"--levels cubic", "uniform"},
                               {"--levels fit", "depends on the message"},
                               {"--p 2", "between 0 and 1"},
                               {"--bits 9", "2 to 8"},
                               {"--bucket 0", "from 1 to 67108864"},
                               {"--bucket 4294967295", "as many random values"},
                               {"--norm l0.5", "linf"},
                               {"--levels minimax --norm l3", "l1, l2 and linf"},
                               {"--link fast", "20mbit,10ms"},
                               {"--link 1mbit --target 0", "target"},
                               {"--link 1mbit --target inf", "target"},
                               {"--link 1mbit --compute -1", "step computes"},
                               {"--link 1mbit --parameters -1", "parameters"},
                               {"--link 1mbit --noise 5", "second moment"}});
}

TEST_F(TheoryTest, OptionsWithoutEffectAreRefused) {
  ExpectUsageErrors("theory",
                    {{"--graph ring --plot out.png", "--plot has no effect beside --graph"},
                     {"--graph ring --bits 4", "--bits has no effect beside --graph"},
                     {"--graph ring --link 1mbit", "--link has no effect beside --graph"},
                     {"--uploads --levels exp", "--levels has no effect beside --uploads"},
                     {"--uploads --graph ring", "--graph has no effect beside --uploads"},
                     {"--workers 8", "--workers has no effect without --link"},
                     {"--nodes 8", "--nodes has no effect without --graph"},
                     {"--uploads --codec topk", "--codec has no effect without --graph"},
                     {"--graph ring --gap 0.1", "--gap has no effect without --uploads"},
                     {"--python python3", "--python has no effect without --plot"}});
}

}  // namespace
}  // namespace elastiquant::cli
