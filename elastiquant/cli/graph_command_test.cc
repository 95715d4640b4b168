#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

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
  const auto trials = steps.at("trials");
  EXPECT_GE(trials.size(), 10u);
  EXPECT_EQ(trials.front().at("step"), 1);
  EXPECT_LT(trials.back().at("step"), steps.at("best"));  // smaller ones are no better
}

TEST_F(GraphTest, DoubtsAlgorithmsThatACodecMakesDiverge) {
  const std::string ring = "graph ring --nodes 8 --codec qsgd:bits=";
  const Outcome coarse = Run(ring + "2");
  ASSERT_EQ(coarse.exit_code, kExitDone) << coarse.err;
  EXPECT_THAT(coarse.out, HasSubstr("runs, but dcd under qsgd:bits=2 on ring may diverge"));
  const Outcome told = Run(ring + "2 --json"), fine = Run(ring + "8 --json");
  const auto doubts = nlohmann::json::parse(told.out).at("doubts");
  EXPECT_THAT(doubts.at("ecd"), HasSubstr("models come apart"));
  EXPECT_FALSE(doubts.contains("choco"));
  EXPECT_TRUE(nlohmann::json::parse(fine.out).at("doubts").empty());
}

TEST_F(GraphTest, RefusesWhatIsNoGraph) {
  const Outcome run = Run("graph rings --nodes 4");
  EXPECT_EQ(run.exit_code, kExitUsage);
  EXPECT_THAT(run.err, HasSubstr("valid are: ring"));
  ExpectUsageErrors("graph ring", {{"--delay 1", "--codec"}});
}

}  // namespace
}  // namespace elastiquant::cli
