#include "elastiquant/theory/momentum_rate.h"

#include <algorithm>
#include <cmath>

namespace elastiquant::theory {

double MomentumStep(const SgdProblem& problem, const Momentum& momentum, double scale,
                    double steps) {
  return std::min((1 - momentum.beta) / (2 * problem.smoothness), scale / std::sqrt(steps + 1));
}

double ConvexMomentumBound(const SgdProblem& problem, const Momentum& momentum, double slope,
                           double noise, double scale, double steps) {
  const double rest = 1 - momentum.beta;
  const double step = MomentumStep(problem, momentum, scale, steps);
  const double squares = slope * slope + noise;
  return momentum.beta * problem.gap / (rest * (steps + 1)) +
         rest * problem.distance * problem.distance / (2 * step * (steps + 1)) +
         step * (2 * momentum.nesterov * momentum.beta + 1) * squares / (2 * rest);
}

double NonconvexMomentumBound(const SgdProblem& problem, const Momentum& momentum, double slope,
                              double noise, double scale, double steps) {
  const double rest = 1 - momentum.beta, root = std::sqrt(steps + 1);
  const double squares = slope * slope + noise;
  const double start = 2 * problem.gap * rest / (steps + 1) *
                       std::max(2 * problem.smoothness / rest, root / scale);
  const double lag = momentum.beta * (rest * momentum.nesterov - 1);
  const double floor = problem.smoothness * (lag * lag * squares + noise * rest * rest);
  return start + scale / root * floor / (rest * rest * rest);
}

}  // namespace elastiquant::theory
