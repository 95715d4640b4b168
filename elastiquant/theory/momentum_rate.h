// How fast momentum SGD converges with quantised gradients: stochastic unified momentum (Yang,
// Lin and Li, "Unified convergence analysis of stochastic momentum methods", 2016), with the
// noise of the decoded mean in the place of the gradient's (NoiseOfMean). Momentum is applied
// after decoding and averaging, so it is the same on all workers and costs no communication.
#pragma once

#include "elastiquant/theory/sgd_rate.h"

namespace elastiquant::theory {

// y' = x - step g, z' = x - nesterov step g, x' = y' + beta (z' - z), z_0 = x_0:
// nesterov = 0 is the heavy ball, 1 is Nesterov's.
struct Momentum {
  double beta = 0.9;    // [0, 1)
  double nesterov = 0;  // c >= 0
};

// The step of both theorems, min((1 - beta) / (2L), scale / sqrt(T+1)); scale = C > 0.
double MomentumStep(const SgdProblem& problem, const Momentum& momentum, double scale,
                    double steps);

// f convex and L-smooth, |grad f| <= G (`slope`), noise = delta^2, a = MomentumStep. For the
// mean of x_0 ... x_T, D = |x_0 - x*| (`distance`), f_0 - f* (`gap`):
//   E f(mean) - f* <= beta (f_0-f*) / ((1-beta)(T+1)) + (1-beta) D^2 / (2a (T+1))
//                     + a (2 c beta + 1)(G^2 + delta^2) / (2 (1-beta)).
double ConvexMomentumBound(const SgdProblem& problem, const Momentum& momentum, double slope,
                           double noise, double scale, double steps);

// f L-smooth, not convex:
//   min over t <= T of E|grad f(x_t)|^2 <=
//     2 (f_0-f*)(1-beta)/(T+1) max(2L/(1-beta), sqrt(T+1)/C)
//     + C/sqrt(T+1) (L beta^2 ((1-beta)c - 1)^2 (G^2+delta^2) + L delta^2 (1-beta)^2)
//       / (1-beta)^3.
double NonconvexMomentumBound(const SgdProblem& problem, const Momentum& momentum, double slope,
                              double noise, double scale, double steps);

}  // namespace elastiquant::theory
