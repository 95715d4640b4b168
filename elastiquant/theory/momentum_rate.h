// Says how fast momentum SGD converges with quantised gradients, by stochastic unified momentum
// (Yang, Lin and Li, "Unified convergence analysis of stochastic momentum methods", 2016), with
// the noise of the decoded mean in the place of the gradient's (NoiseOfMean). Momentum is
// applied after decoding and averaging, so it is the same on all workers and costs no
// communication.
#pragma once

#include "elastiquant/theory/sgd_rate.h"

namespace elastiquant::theory {

// The method y' = x - step g, z' = x - nesterov step g, x' = y' + beta (z' - z), z_0 = x_0. It
// is the heavy ball for nesterov = 0, and Nesterov's for 1.
struct Momentum {
  double beta = 0.9;    // [0, 1)
  double nesterov = 0;  // c >= 0
};

// Returns the step of both theorems, min((1 - beta) / (2L), scale / sqrt(T+1)), with scale = C
// > 0.
double MomentumStep(const SgdProblem& problem, const Momentum& momentum, double scale,
                    double steps);

// Returns the bound for an f that is convex and L-smooth with |grad f| <= G (`slope`). With
// noise = delta^2, a = MomentumStep, D = |x_0 - x*| (`distance`) and f_0 - f* (`gap`), the mean
// of x_0 ... x_T has
//   E f(mean) - f* <= beta (f_0-f*) / ((1-beta)(T+1)) + (1-beta) D^2 / (2a (T+1))
//                     + a (2 c beta + 1)(G^2 + delta^2) / (2 (1-beta)).
double ConvexMomentumBound(const SgdProblem& problem, const Momentum& momentum, double slope,
                           double noise, double scale, double steps);

// Returns the bound for an L-smooth f that is not convex:
//   min over t <= T of E|grad f(x_t)|^2 <=
//     2 (f_0-f*)(1-beta)/(T+1) max(2L/(1-beta), sqrt(T+1)/C)
//     + C/sqrt(T+1) (L beta^2 ((1-beta)c - 1)^2 (G^2+delta^2) + L delta^2 (1-beta)^2)
//       / (1-beta)^3.
double NonconvexMomentumBound(const SgdProblem& problem, const Momentum& momentum, double slope,
                              double noise, double scale, double steps);

}  // namespace elastiquant::theory
