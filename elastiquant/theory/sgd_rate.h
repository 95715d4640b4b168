// Says how fast SGD converges when workers' gradients are quantised without bias.
#pragma once

#include "elastiquant/codec/codec.h"

namespace elastiquant::theory {

// What is known of f and of the workers' stochastic gradients g, E g = grad f (with the same f
// on all workers). Norms are L2, and all figures are in the units of f and x.
struct SgdProblem {
  double smoothness = 1;     // L: grad f is L-Lipschitz
  double distance = 1;       // R: sup |x - x_0| over where the iterates are (convex)
  double gap = 1;            // f(x_0) - f* (non-convex)
  double noise = 1;          // sigma^2 >= E|g - grad f|^2
  double second_moment = 1;  // B >= E|g|^2; at least the noise
};

// Returns the bound delta^2 on E|decoded mean - grad f|^2 of K workers whose codec has variance
// `omega`:
//   (sigma^2 + omega B) / K (QSGD, Alistarh et al. 2017, section 2)
// or, for kTwoPhase, where the mean m is encoded once more, at omega E|m|^2,
//   (sigma^2 + omega B) / K + omega (B - sigma^2 + (sigma^2 + omega B) / K) (ours)
// with the noise at its most or at none, whichever gives more (it is linear in the noise).
// Codecs are unbiased, and draws on the workers are independent. omega = 0 means no
// compression.
double NoiseOfMean(const SgdProblem& problem, double omega, int workers, Exchange exchange);

// QSGD's Theorem 2.1 (Bubeck 2015, Theorem 6.3) for an f that is convex and L-smooth, with
// noise = delta^2 > 0. ConvexStep returns the step 1/(L + 1/gamma) with gamma = (R/delta)
// sqrt(2/T). ConvexBound returns the bound that the mean of x_1 ... x_T then has,
//   E f(mean) - f* <= R sqrt(2 delta^2 / T) + L R^2 / T.
double ConvexBound(const SgdProblem& problem, double noise, double steps);
double ConvexStep(const SgdProblem& problem, double noise, double steps);
// Returns the least T, rounded up, from which on that bound is at most `target` > 0.
double ConvexSteps(const SgdProblem& problem, double noise, double target);

// Ghadimi and Lan (SIAM J. Optim. 23, 2013, Corollary 2.2), for an L-smooth f that is not
// convex. The functions return the bound, the step min(1/L, sqrt(2 gap / (L delta^2 T))) and
// the least T, as above:
//   (1/T) sum over t < T of E|grad f(x_t)|^2 <= 2 L gap / T + 2 delta sqrt(2 L gap / T).
double NonconvexBound(const SgdProblem& problem, double noise, double steps);
double NonconvexStep(const SgdProblem& problem, double noise, double steps);
double NonconvexSteps(const SgdProblem& problem, double noise, double target);

}  // namespace elastiquant::theory
