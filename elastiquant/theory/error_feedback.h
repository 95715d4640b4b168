// Constants and rates of error feedback for contractive codecs, E|C(v)-v|^2 <= (1-delta)|v|^2.
#pragma once

#include "elastiquant/theory/sgd_rate.h"

namespace elastiquant::theory {

// Returns the delta of an unbiased codec of variance omega. It is contractive when what it
// decodes to is divided by 1 + omega: delta = 1 / (1 + omega).
double ContractionOfUnbiased(double omega);

// Returns a bound on the memory of EF-SGD, x' = x - C(step g + e), e' = step g + e - C(step g +
// e). For all t, with E|g|^2 <= B (`second_moment`), it is (Karimireddy et al., "Error feedback
// fixes SignSGD", ICML 2019, Lemma 3)
//   E|e_t|^2 <= 4 (1-delta)/delta^2 step^2 B.
double MemoryBound(double delta, double step, double second_moment);

// Returns the bound for an L-smooth f that is not convex, which is their Theorem II as its
// proof gives it:
//   min over t <= T of E|grad f(x_t)|^2 <=
//     2 (f_0-f*) / (step (T+1)) + step L B + 4 step^2 L^2 B (1-delta)/delta^2.
// (We know a form with step L B / 2; descent along x - e, halved twice, does not give it.)
double ErrorFeedbackBound(const SgdProblem& problem, double delta, double step, double steps);

// Return where the memory of random-k without scaling (each coordinate is sent with chance
// delta) settles in expectation (ours). Independent gradients of variance sigma^2 leave
// (1-delta)/delta sigma^2 in it, and a constant gradient g leaves (1-delta)(2-delta)/delta^2
// |g|^2.
double MemoryOfNoise(double delta, double noise);
double MemoryOfDrift(double delta, double square);

// EF21 (Richtarik, Sokolov and Fatkhullin, NeurIPS 2021, Theorem 1). Each worker keeps an
// estimate g_i and sends C(grad f_i(x') - g_i). Gradients are exact, and need not be bounded.
// With theta = 1 - sqrt(1-delta) and beta = (1-delta)/theta, the functions return the step and
// the bound
//   step = 1 / (L + L~ sqrt(beta/theta)),
//   (1/T) sum E|grad f|^2 <= 2 (f_0-f*) / (step T) + G_0 / (theta T),
// where L~ is the root mean square of the workers' smoothness and G_0 the mean of |g_i^0 - grad
// f_i(x_0)|^2.
double Ef21Step(double delta, double smoothness, double worker_smoothness);
double Ef21Bound(double delta, double step, double gap, double first_error, double steps);

}  // namespace elastiquant::theory
