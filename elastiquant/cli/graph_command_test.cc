#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "elastiquant/cli/program_testing.h"

namespace elastiquant::cli {
namespace {

using ::testing::HasSubstr;
using GraphTest = ProgramTest;

TEST_F(GraphTest, PrintsWeightsGapAndLeastEigenvalueAsJson) {
  const Outcome run = Run("graph ring --nodes 8 --json");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  const auto told = nlohmann::json::parse(run.out);
  EXPECT_NEAR(told.at("gap"), .19526, 1e-4);
  EXPECT_NEAR(told.at("lambda_min"), -1.0 / 3, 1e-9);
  ASSERT_EQ(told.at("weights").size(), 8u);
  EXPECT_NEAR(told["weights"][0][7], 1.0 / 3, 1e-12);
  EXPECT_EQ(told["weights"][0][4], 0);
  EXPECT_EQ(told["algorithms"]["choco"], "");
  EXPECT_THAT(told["algorithms"]["d2"].get<std::string>(), HasSubstr("lazy=1"));
}

TEST_F(GraphTest, SaysWhatTheGraphMeansForAlgorithms) {
  const Outcome run = Run("graph one-peer-exponential --nodes 8");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("repeats after 3 steps"));
  EXPECT_THAT(run.out, HasSubstr("a whole period leaves none"));
  EXPECT_THAT(run.out, HasSubstr("noloco             runs"));
  EXPECT_THAT(run.out, HasSubstr("dcd                no: this algorithm needs a graph that"));
}

TEST_F(GraphTest, SearchesForTheStepOfACodec) {
  const Outcome run = Run("graph ring --nodes 4 --codec topk:ratio=0.01 --json");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  const auto steps = nlohmann::json::parse(run.out).at("gossip_step");
  EXPECT_LT(steps.at("best"), .5);
  EXPECT_EQ(steps.at("trials").size(), 10u);
}

TEST_F(GraphTest, RefusesWhatIsNoGraph) {
  const Outcome run = Run("graph rings --nodes 4");
  EXPECT_EQ(run.exit_code, kExitUsage);
  EXPECT_THAT(run.err, HasSubstr("valid are: ring"));
}

}  // namespace
}  // namespace elastiquant::cli
