#include "elastiquant/theory/error_feedback.h"

#include <cmath>

namespace elastiquant::theory {

double ContractionOfUnbiased(double omega) { return 1 / (1 + omega); }

double MemoryBound(double delta, double step, double second_moment) {
  return 4 * (1 - delta) / (delta * delta) * step * step * second_moment;
}

double ErrorFeedbackBound(const SgdProblem& problem, double delta, double step, double steps) {
  const double smoothness = problem.smoothness;
  return 2 * problem.gap / (step * (steps + 1)) + step * smoothness * problem.second_moment +
         smoothness * smoothness * MemoryBound(delta, step, problem.second_moment);
}

double MemoryOfNoise(double delta, double noise) { return (1 - delta) / delta * noise; }

double MemoryOfDrift(double delta, double square) {
  return (1 - delta) * (2 - delta) / (delta * delta) * square;
}

double Ef21Step(double delta, double smoothness, double worker_smoothness) {
  const double theta = 1 - std::sqrt(1 - delta);
  const double beta = (1 - delta) / theta;
  return 1 / (smoothness + worker_smoothness * std::sqrt(beta / theta));
}

double Ef21Bound(double delta, double step, double gap, double first_error, double steps) {
  const double theta = 1 - std::sqrt(1 - delta);
  return 2 * gap / (step * steps) + first_error / (theta * steps);
}

}  // namespace elastiquant::theory
