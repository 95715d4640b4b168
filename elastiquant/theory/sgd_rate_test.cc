#include "elastiquant/theory/sgd_rate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "elastiquant/theory/codec_bounds.h"
#include "elastiquant/theory/momentum_rate.h"
#include "elastiquant/theory/tiny_problems_test_util.h"

namespace elastiquant::theory {
namespace {

TEST(Steps, AreTheLeastThatReachTheTarget) {
  const SgdProblem problem{2, 3, 5, 0.7, 1.4};
  for (double target : {1.0, 1e-2, 1e-4}) {
    const double convex = ConvexSteps(problem, .7, target);
    EXPECT_LE(ConvexBound(problem, .7, convex), target * (1 + 1e-9));
    EXPECT_GT(ConvexBound(problem, .7, convex - 1), target);
    const double other = NonconvexSteps(problem, .7, target);
    EXPECT_LE(NonconvexBound(problem, .7, other), target * (1 + 1e-9));
    EXPECT_GT(NonconvexBound(problem, .7, other - 1), target);
  }
}

TEST(NoiseOfMean, FallsWithWorkersButForTheSecondPhase) {
  const SgdProblem problem{1, 1, 1, 2, 10};
  EXPECT_DOUBLE_EQ(NoiseOfMean(problem, .5, 4, Exchange::kAllGather), (2 + 5) / 4.0);
  EXPECT_DOUBLE_EQ(NoiseOfMean(problem, 0, 4, Exchange::kTwoPhase), .5);
  // However many workers there are, the second phase adds omega |mean|^2.
  EXPECT_NEAR(NoiseOfMean(problem, .5, 1000000, Exchange::kTwoPhase), .5 * 10, 1e-4);
}

// Constants measured along a first run, with a tenth to spare, under which the second must
// stay.
struct Constants {
  SgdProblem problem;
  double slope = 0;
  double noise = 0;
};

constexpr double kSpare = 1.1;
// The network's bounds on squared gradients are not below where training starts, which 400
// steps are too few for; how far above the measured ones they are is recorded.
constexpr double kNever = std::numeric_limits<double>::infinity();

class RateTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    f_ = name == "quadratic" ? MakeQuadratic()
                             : (name == "logistic" ? MakeLogistic() : MakeNetwork());
    convex_ = name != "network";
    // Logistic losses bend most at the origin, the others alike everywhere or near the start.
    const Point centre = name == "logistic" ? Point(f_->dimension(), 0) : f_->Start();
    smoothness_ = kSpare * MeasureSmoothness(*f_, centre, convex_ ? .3 : 1.5);
    const Point best = Minimise(*f_, smoothness_, 4000);
    // The network's infimum is not known, but its loss is not negative.
    least_ = convex_ ? f_->Value(best) : 0;
    distance_ = std::sqrt(Square(Difference(best, f_->Start())));
    training_.codec = Make("elastic:bits=3,norm=l2,bucket=0,levels=exp");
  }

  Constants Measured(const Trace& trace, double omega) const {
    Constants c;
    c.problem = {smoothness_, distance_, f_->Value(f_->Start()) - least_, kSpare * trace.noise,
                 kSpare * trace.second_moment};
    c.slope = kSpare * trace.slope;
    c.noise = NoiseOfMean(c.problem, omega, training_.workers,
                          training_.two_phase ? Exchange::kTwoPhase : Exchange::kAllGather);
    return c;
  }
  double Omega() const { return *PlannedVariance(BoundsOf(*training_.codec, f_->dimension())); }
  // The second run's constants are those that the bound was computed with.
  void ExpectWithin(const Trace& trace, const Constants& c) const {
    EXPECT_LE(trace.noise, c.problem.noise);
    EXPECT_LE(trace.second_moment, c.problem.second_moment);
    EXPECT_LE(trace.slope, c.slope);
    EXPECT_LE(trace.smoothness, c.problem.smoothness);
  }
  // The bound holds, and says something: what it allows is less than what training starts from.
  void ExpectBound(const std::string& name, double measured, double bound, double start) {
    EXPECT_LE(measured, bound) << name;
    EXPECT_LT(bound, start) << name;
    RecordProperty(name + "_bound_over_measured", std::to_string(bound / measured));
    RecordProperty(name + "_start_over_bound", std::to_string(start / bound));
  }

  std::unique_ptr<FiniteSum> f_;
  bool convex_ = true;
  double smoothness_ = 1, least_ = 0, distance_ = 1;
  Training training_;
};

TEST_P(RateTest, PlainSgdStaysUnderItsBound) {
  for (const bool two_phase : {false, true}) {
    training_.two_phase = two_phase;
    training_.steps = 400;
    training_.step = 0.5 / smoothness_;
    const Constants c = Measured(Train(*f_, training_), Omega());
    training_.step = convex_ ? ConvexStep(c.problem, c.noise, training_.steps)
                             : NonconvexStep(c.problem, c.noise, training_.steps);
    const Trace trace = Train(*f_, training_);
    ExpectWithin(trace, c);
    const std::string name = two_phase ? "two_phase" : "all_gather";
    if (convex_) {
      ExpectBound(name, trace.mean_value - least_,
                  ConvexBound(c.problem, c.noise, training_.steps), c.problem.gap);
    } else {
      ExpectBound(name, trace.mean_square, NonconvexBound(c.problem, c.noise, training_.steps),
                  kNever);
    }
  }
}

TEST_P(RateTest, MomentumStaysUnderItsBound) {
  for (const Momentum momentum : {Momentum{0.9, 0}, Momentum{0.9, 1}, Momentum{0.5, 0}}) {
    training_.momentum = momentum;
    training_.steps = 400;
    training_.with_start = true;
    training_.step = 0.1 * (1 - momentum.beta) / smoothness_;
    const Constants guess = Measured(Train(*f_, training_), Omega());
    // What makes the two last terms of the convex bound equal.
    const double squares = guess.slope * guess.slope + guess.noise;
    const double scale = (1 - momentum.beta) * distance_ /
                         std::sqrt((2 * momentum.nesterov * momentum.beta + 1) * squares);
    training_.step = MomentumStep(guess.problem, momentum, scale, training_.steps);
    // The step being fixed, the constants may be those of the run itself.
    const Trace trace = Train(*f_, training_);
    const Constants c = Measured(trace, Omega());
    ExpectWithin(trace, c);
    const std::string name =
        momentum.nesterov == 1
            ? "nesterov"
            : "heavy_ball_0_" + std::to_string(std::lround(10 * momentum.beta));
    if (convex_) {
      const double bound =
          ConvexMomentumBound(c.problem, momentum, c.slope, c.noise, scale, training_.steps);
      ExpectBound(name, trace.mean_value - least_, bound, c.problem.gap);
    } else {
      const double bound =
          NonconvexMomentumBound(c.problem, momentum, c.slope, c.noise, scale, training_.steps);
      ExpectBound(name, trace.least_square, bound, kNever);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, RateTest,
                         ::testing::Values("quadratic", "logistic", "network"),
                         [](const auto& problem) { return problem.param; });

}  // namespace
}  // namespace elastiquant::theory
