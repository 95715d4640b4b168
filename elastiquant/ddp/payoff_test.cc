#include "elastiquant/ddp/payoff.h"

#include <gtest/gtest.h>

namespace elastiquant {
namespace {

// A network on which steps take so long.
struct Network {
  double compressed, exact, exact_wire;
};

// Runs steps and counts those that were sent as fp32.
int ExactSteps(Payoff* payoff, const Network& network, int steps) {
  int exact = 0;
  for (int i = 0; i < steps; ++i) {
    exact += payoff->exact();
    payoff->Add(payoff->exact() ? network.exact : network.compressed, network.exact_wire);
  }
  return exact;
}

TEST(Payoff, KeepsCompressingWithoutATrialWhereTheWireIsTooSlow) {
  Payoff payoff(true);
  EXPECT_EQ(ExactSteps(&payoff, {.15, .9, .8}, 3000), 0);
  EXPECT_EQ(payoff.TakeNotice(), "");
}

TEST(Payoff, SendsFp32WhereThatIsFasterAndSaysSo) {
  Payoff payoff(true);
  ExactSteps(&payoff, {.15, .12, .01}, 100);
  EXPECT_TRUE(payoff.exact());
  const std::string notice = payoff.TakeNotice();
  EXPECT_NE(notice.find("0.150 s compressed and 0.120 s uncompressed"), std::string::npos)
      << notice;
  EXPECT_EQ(payoff.TakeNotice(), "") << "told once";
}

TEST(Payoff, TriesWhatALinkThatLooksSlowMayStillCarry) {
  Payoff payoff(true);
  ExactSteps(&payoff, {.15, .12, .5}, 100);
  EXPECT_TRUE(payoff.exact());
}

TEST(Payoff, AHopelessTrialIsShort) {
  Payoff payoff(true);
  EXPECT_LE(ExactSteps(&payoff, {.15, .9, .1}, 500), 2);
  EXPECT_FALSE(payoff.exact());
}

TEST(Payoff, SendsFp32AtADraw) {
  Payoff payoff(true);
  ExactSteps(&payoff, {.149, .150, .01}, 100);
  EXPECT_TRUE(payoff.exact());
  ExactSteps(&payoff, {.140, .150, .01}, 1100);
  EXPECT_FALSE(payoff.exact());
}

TEST(Payoff, ComesBackWhenTheLinkSlowsDown) {
  Payoff payoff(true);
  ExactSteps(&payoff, {.15, .12, .01}, 100);
  ASSERT_TRUE(payoff.exact());
  (void)payoff.TakeNotice();
  ExactSteps(&payoff, {.15, .9, .8}, 1100);
  EXPECT_FALSE(payoff.exact());
  EXPECT_NE(payoff.TakeNotice(), "");
}

TEST(Payoff, DoesNothingIfNotEnabled) {
  Payoff payoff(false);
  EXPECT_EQ(ExactSteps(&payoff, {.15, .01, .001}, 2000), 0);
  EXPECT_FALSE(payoff.timing());
}

TEST(Payoff, OneSlowStepDoesNotDecide) {
  Payoff payoff(true);
  for (int i = 0; i < 60; ++i) {
    // An evaluation between two steps.
    const double pause = i == Payoff::kSettlingSteps + 3 ? 30 : 0;
    payoff.Add((payoff.exact() ? .16 : .15) + pause, .01);
  }
  EXPECT_FALSE(payoff.exact());
}

}  // namespace
}  // namespace elastiquant
