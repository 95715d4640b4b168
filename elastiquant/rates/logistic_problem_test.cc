#include "elastiquant/rates/logistic_problem.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace elastiquant::rates {
namespace {

using Doubles = std::vector<double>;

LogisticProblem ThreeWorkers() {
  std::vector<LogisticLoss::Options> workers;
  for (size_t w = 0; w < 3; ++w) {
    workers.push_back({.samples = 20,
                       .features = 4,
                       .ridge = .1,
                       .smoothness = 1.0 + static_cast<double>(w),
                       .telling_feature = 1 + w,
                       .worker = w});
  }
  return LogisticProblem(workers);
}

TEST(LogisticProblemTest, GradientsAndCurvaturesAreDifferencesOfLosses) {
  const LogisticLoss loss({.features = 3, .ridge = .2, .smoothness = 2});
  const Doubles w = {.3, -.7, 1.1};
  Doubles gradient(3), ahead(3), behind(3);
  loss.Loss(w, gradient);
  const Doubles curvature = loss.Curvature(w);
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < 3; ++i) {
    Doubles more = w, less = w;
    more[i] += kStep;
    less[i] -= kStep;
    const double difference = loss.Loss(more, ahead) - loss.Loss(less, behind);
    EXPECT_NEAR(gradient[i], difference / (2 * kStep), 1e-8);
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_NEAR(curvature[i * 3 + j], (ahead[j] - behind[j]) / (2 * kStep), 1e-8);
    }
  }
}

TEST(LogisticProblemTest, NoCurvatureIsAboveTheSmoothness) {
  // It is the largest where all samples are at a sigmoid of 1/2: at weights of 0.
  const LogisticLoss loss({.features = 5, .ridge = .1, .smoothness = 3});
  const Doubles curvature = loss.Curvature(Doubles(5));
  Doubles v(5, 1), next(5);
  double largest = 0;
  for (int k = 0; k < 200; ++k) {
    largest = 0;
    for (size_t i = 0; i < 5; ++i) {
      next[i] = 0;
      for (size_t j = 0; j < 5; ++j) next[i] += curvature[i * 5 + j] * v[j];
      largest += next[i] * next[i];
    }
    largest = std::sqrt(largest);
    for (size_t i = 0; i < 5; ++i) v[i] = next[i] / largest;
  }
  EXPECT_NEAR(largest, 3, 1e-6);
}

TEST(LogisticProblemTest, NoGradientIsLeftAtTheLeastLoss) {
  const LogisticProblem problem = ThreeWorkers();
  EXPECT_NEAR(problem.rate(), 1.0 / 2, 1e-12);  // the mean smoothness is 2
  Doubles gradient(4);
  const Doubles least = problem.Least();
  const double loss = problem.Loss(least, gradient);
  for (const double g : gradient) EXPECT_NEAR(g, 0, 1e-9);
  Doubles other = least;
  other[2] += .01;
  EXPECT_GT(problem.Loss(other, gradient), loss);
}

}  // namespace
}  // namespace elastiquant::rates
