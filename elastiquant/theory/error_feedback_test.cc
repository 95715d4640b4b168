#include "elastiquant/theory/error_feedback.h"

#include <gtest/gtest.h>

#include <cmath>

#include "elastiquant/theory/tiny_problems_test_util.h"

namespace elastiquant::theory {
namespace {

Point Through(const Codec& codec, const Point& v, uint64_t step) {
  const std::vector<float> values(v.begin(), v.end());
  const auto decoded = Decode(Encode(codec, values, DeriveKey(1, step, 0, 0)), values.size());
  return {decoded.begin(), decoded.end()};
}

// EF-SGD with top-k, a quarter of the coordinates: delta = 1/4.
TEST(ErrorFeedback, MemoryAndRateStayUnderTheirBounds) {
  for (const bool network : {false, true}) {
    const auto f = network ? MakeNetwork() : MakeQuadratic();
    const auto codec = Make("topk:ratio=0.25");
    const double delta = 1 - *codec->NmseBound(f->dimension());
    EXPECT_GE(delta, .2);
    SgdProblem problem;
    problem.smoothness = 1.1 * MeasureSmoothness(*f, f->Start(), network ? 1.5 : 3);
    problem.gap = f->Value(f->Start());  // losses are not negative
    const double step = 0.1 / problem.smoothness;
    constexpr int kSteps = 500, kRuns = 6;
    std::vector<double> memory(kSteps, 0), squares(kSteps, 0);
    problem.second_moment = 0;
    for (int run = 0; run < kRuns; ++run) {
      std::mt19937 random(static_cast<unsigned>(run));
      Point x = f->Start(), e(f->dimension(), 0);
      for (size_t t = 0; t < kSteps; ++t) {
        squares[t] += Square(f->Mean(x)) / kRuns;
        double moment = 0;
        for (size_t i = 0; i < f->samples(); ++i) {
          moment += Square(f->Gradient(x, i)) / static_cast<double>(f->samples());
        }
        problem.second_moment = std::max(problem.second_moment, moment);
        AddScaled(&e, step, f->Gradient(x, random() % f->samples()));
        const Point sent = Through(*codec, e, t);
        AddScaled(&x, -1, sent);
        e = Difference(e, sent);
        memory[t] += Square(e) / kRuns;
      }
    }
    const double most = *std::max_element(memory.begin(), memory.end());
    const double bound = MemoryBound(delta, step, problem.second_moment);
    EXPECT_LE(most, bound);
    EXPECT_GT(most, bound / 200);
    EXPECT_LE(*std::min_element(squares.begin(), squares.end()),
              ErrorFeedbackBound(problem, delta, step, kSteps - 1));
    RecordProperty(network ? "network_memory_part" : "quadratic_memory_part",
                   std::to_string(most / bound));
  }
}

// Each coordinate is sent with chance delta: simulated on one coordinate.
TEST(ErrorFeedback, MemoryOfRandomKSettlesWhereSaid) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform;
  std::normal_distribution<double> normal;
  for (double delta : {.1, .4}) {
    for (const bool drifting : {false, true}) {
      double e = 0, mean = 0;
      constexpr int kSteps = 400000;
      for (int t = 0; t < kSteps; ++t) {
        e += drifting ? 2 : 3 * normal(random);
        if (uniform(random) < delta) e = 0;
        mean += e * e / kSteps;
      }
      const double want = drifting ? MemoryOfDrift(delta, 4) : MemoryOfNoise(delta, 9);
      EXPECT_NEAR(mean, want, .04 * want) << delta << drifting;
    }
  }
}

TEST(ErrorFeedback, AnUnbiasedCodecDividedIsContractive) {
  const auto codec = Make("elastic:bits=2,norm=l2,bucket=0,levels=exp");
  const std::vector<float> v(64, 1);
  const double omega = 7;  // sqrt(64) - 1, what equal coordinates cost two levels
  double error = 0;
  constexpr int kDraws = 4000;
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    auto q = Decode(Encode(*codec, v, DeriveKey(1, draw, 0, 0)), v.size());
    for (float& x : q) x /= 1 + static_cast<float>(omega);
    error += Nmse(v, q) / kDraws;
  }
  EXPECT_NEAR(error, 1 - ContractionOfUnbiased(omega), .01);
}

// EF21 on workers whose gradients differ: no bound on them is needed.
TEST(Ef21, StaysUnderItsBound) {
  const auto f = MakeQuadratic();  // worker i has sample i
  constexpr size_t kWorkers = 8;
  const auto codec = Make("topk:ratio=0.25");
  const double delta = 1 - *codec->NmseBound(f->dimension());
  const double step = Ef21Step(delta, 1, 1);
  EXPECT_GT(step, .05);
  Point x = f->Start();
  std::vector<Point> estimates(kWorkers, Point(f->dimension(), 0));
  double first_error = 0, mean_square = 0, start = 0;
  const auto value = [&](const Point& at) {
    double sum = 0;
    for (size_t i = 0; i < kWorkers; ++i) sum += f->Loss(at, i) / kWorkers;
    return sum;
  };
  start = value(x);
  for (size_t i = 0; i < kWorkers; ++i) {
    first_error += Square(f->Gradient(x, i)) / kWorkers;
  }
  constexpr int kSteps = 2000;
  for (uint64_t t = 0; t < kSteps; ++t) {
    Point gradient(f->dimension(), 0), direction(f->dimension(), 0);
    for (size_t i = 0; i < kWorkers; ++i) {
      AddScaled(&gradient, 1.0 / kWorkers, f->Gradient(x, i));
      AddScaled(&direction, 1.0 / kWorkers, estimates[i]);
    }
    mean_square += Square(gradient) / kSteps;
    AddScaled(&x, -step, direction);
    for (size_t i = 0; i < kWorkers; ++i) {
      const Point change = Difference(f->Gradient(x, i), estimates[i]);
      AddScaled(&estimates[i], 1, Through(*codec, change, t));
    }
  }
  const double bound = Ef21Bound(delta, step, start, first_error, kSteps);
  EXPECT_LE(mean_square, bound);
  EXPECT_GT(mean_square, bound / 50);
}

}  // namespace
}  // namespace elastiquant::theory
