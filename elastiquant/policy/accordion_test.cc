#include "elastiquant/policy/accordion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "elastiquant/policy/policy_testing.h"

namespace elastiquant::policy {
namespace {

TEST(AccordionTest, SendsLessWhileTheNormChangesByLessThanHalf) {
  Accordion accordion;
  const struct {
    double norm, ratio;
  } rounds[] = {{4, .1},                            // the first
                {3, .01},    {3, .01},  {1.5, .1},  // exactly a half is a change
                {2.24, .01}, {3.4, .1}, {5.09, .01},
                {.5, .1},    {0, .1},   {0, .1},  // nothing to compare with
                {1, .1},     {1.1, .01}};
  for (size_t i = 0; i < std::size(rounds); ++i) {
    EXPECT_EQ(accordion.Next(rounds[i].norm), rounds[i].ratio) << "round " << i;
  }
}

TEST(AccordionTest, TakesOtherRatiosAndThresholds) {
  Accordion accordion({.least = .2, .most = .7, .threshold = .1});
  EXPECT_EQ(accordion.Next(1), .7);
  EXPECT_EQ(accordion.Next(1.05), .2);
  EXPECT_EQ(accordion.Next(1.2), .7);
}

TEST(AccordionTest, NormBeyondNumbersIsNotQuiet) {
  Accordion accordion;
  (void)accordion.Next(1);
  EXPECT_EQ(accordion.Next(std::numeric_limits<double>::infinity()), .1);
  EXPECT_EQ(accordion.Next(1), .1);
  EXPECT_EQ(accordion.Next(NAN), .1);
}

TEST(AccordionTest, ARestoredOneGoesOnAlike) {
  for (uint64_t draw = 0; draw < 50; ++draw) {
    Draws draws(3, draw);
    Accordion one;
    const size_t before = draws.Below(5);
    for (size_t i = 0; i < before; ++i) (void)one.Next(draws.Uniform(0, 2));
    Accordion other;
    ASSERT_TRUE(other.LoadState(one.SaveState()).ok());
    for (int i = 0; i < 20; ++i) {
      const double norm = draws.Uniform(0, 2);
      EXPECT_EQ(one.Next(norm), other.Next(norm));
    }
  }
}

TEST(AccordionTest, RefusesAStateThatIsNotItsOwn) {
  Accordion accordion;
  (void)accordion.Next(1);
  const double two[] = {1, 2}, negative[] = {-1}, nan[] = {NAN};
  for (const std::span<const double> state :
       {std::span<const double>(two), {negative}, {nan}}) {
    EXPECT_EQ(accordion.LoadState(state).code(), StatusCode::kCorruptData);
  }
  EXPECT_EQ(accordion.Next(1), .01);
}

}  // namespace
}  // namespace elastiquant::policy
