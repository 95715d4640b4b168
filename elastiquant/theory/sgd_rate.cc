#include "elastiquant/theory/sgd_rate.h"

#include <algorithm>
#include <cmath>

namespace elastiquant::theory {
namespace {

// The least T with slow / sqrt(T) + fast / T <= target.
double StepsTo(double slow, double fast, double target) {
  // The positive root of fast x^2 + slow x = target, x = 1/sqrt(T), in a form that loses no
  // digits.
  const double x = 2 * target / (slow + std::sqrt(slow * slow + 4 * fast * target));
  return std::ceil(1 / (x * x) * (1 - 1e-12));
}

double ConvexSlow(const SgdProblem& p, double noise) {
  return p.distance * std::sqrt(2 * noise);
}
double ConvexFast(const SgdProblem& p) { return p.smoothness * p.distance * p.distance; }
double NonconvexSlow(const SgdProblem& p, double noise) {
  return 2 * std::sqrt(2 * noise * p.smoothness * p.gap);
}
double NonconvexFast(const SgdProblem& p) { return 2 * p.smoothness * p.gap; }

}  // namespace

double NoiseOfMean(const SgdProblem& problem, double omega, int workers, Exchange exchange) {
  const auto one_phase = [&](double noise) {
    return (noise + omega * problem.second_moment) / workers;
  };
  if (exchange != Exchange::kTwoPhase) return one_phase(problem.noise);
  const auto two_phase = [&](double noise) {
    return one_phase(noise) + omega * (problem.second_moment - noise + one_phase(noise));
  };
  return std::max(two_phase(problem.noise), two_phase(0));
}

double ConvexBound(const SgdProblem& problem, double noise, double steps) {
  return ConvexSlow(problem, noise) / std::sqrt(steps) + ConvexFast(problem) / steps;
}

double ConvexStep(const SgdProblem& problem, double noise, double steps) {
  const double gamma = problem.distance * std::sqrt(2 / (noise * steps));
  return 1 / (problem.smoothness + 1 / gamma);
}

double ConvexSteps(const SgdProblem& problem, double noise, double target) {
  return StepsTo(ConvexSlow(problem, noise), ConvexFast(problem), target);
}

double NonconvexBound(const SgdProblem& problem, double noise, double steps) {
  return NonconvexSlow(problem, noise) / std::sqrt(steps) + NonconvexFast(problem) / steps;
}

double NonconvexStep(const SgdProblem& problem, double noise, double steps) {
  return std::min(1 / problem.smoothness,
                  std::sqrt(2 * problem.gap / (problem.smoothness * noise * steps)));
}

double NonconvexSteps(const SgdProblem& problem, double noise, double target) {
  return StepsTo(NonconvexSlow(problem, noise), NonconvexFast(problem), target);
}

}  // namespace elastiquant::theory
