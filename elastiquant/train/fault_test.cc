#include "elastiquant/train/fault.h"

#include <gtest/gtest.h>

namespace elastiquant {
namespace {

TEST(FaultTest, FaultsStrikeWhereAndWhenTheyShould) {
  const auto faults = ParseFaults("nan@step=5,rank=1,times=2;kill@step=9");
  ASSERT_TRUE(faults.ok()) << faults.status().message();
  ASSERT_EQ(faults->size(), 2u);
  const Fault& nan = (*faults)[0];
  EXPECT_EQ(nan.kind, FaultKind::kNan);
  EXPECT_FALSE(nan.Strikes(4, 1));
  EXPECT_TRUE(nan.Strikes(5, 1));
  EXPECT_TRUE(nan.Strikes(6, 1));
  EXPECT_FALSE(nan.Strikes(7, 1));
  EXPECT_FALSE(nan.Strikes(5, 0));
  EXPECT_EQ((*faults)[1].kind, FaultKind::kKill);
  EXPECT_TRUE((*faults)[1].Strikes(9, 0));
  EXPECT_EQ((*faults)[1].moment, FaultMoment::kStep);
  EXPECT_EQ(ParseFaults("throw@at=checkpoint")->front().moment, FaultMoment::kCheckpoint);
  EXPECT_TRUE(ParseFaults("")->empty());
}

TEST(FaultTest, MistakesListWhatIsValid) {
  const auto message = [](const char* text) { return ParseFaults(text).status().message(); };
  EXPECT_NE(message("boom@step=1").find("nan, throw, quit, exit, kill, stop, hang, drift"),
            std::string::npos);
  EXPECT_NE(message("nan@when=1").find("step, rank, times, at"), std::string::npos);
  EXPECT_NE(message("nan@at=noon").find("evaluation, checkpoint, end"), std::string::npos);
  EXPECT_NE(message("nan@step=x").find("'step' needs a number"), std::string::npos);
  EXPECT_NE(message("nan@step=-1").find("'step' needs a number"), std::string::npos);
}

}  // namespace
}  // namespace elastiquant
