// Says what compression costs decentralised SGD, where models differ, and only neighbours
// exchange compressed differences.
#pragma once

#include "elastiquant/graph/mixing.h"
#include "elastiquant/theory/sgd_rate.h"

namespace elastiquant::theory {

// CHOCO-Gossip (Koloskova, Stich and Jaggi, ICML 2019, Theorem 2) for symmetric W with gap rho
// and beta = |I - W|, and any contractive codec with delta; an unbiased one, divided by 1 +
// omega, has delta = 1/(1+omega). ChocoStep returns the step gamma of the theorem,
//   rho^2 delta / (16 rho + rho^2 + 4 beta^2 + 2 rho beta^2 - 8 rho delta).
// ChocoContraction returns 1 - rho^2 delta / 82, which is the most that sum |x_i - mean|^2 +
// |x_i - x^_i|^2 is multiplied by in each round, in expectation. This is loose: in practice
// gamma is tuned and some ten times larger.
double ChocoStep(const MixingFactors& factors, double delta);
double ChocoContraction(const MixingFactors& factors, double delta);

// Returns the bound of CHOCO-SGD for L-smooth f_i that are not convex (Koloskova et al., ICLR
// 2020, Theorem 4.1). With n workers, sigma^2 = `noise` of each, E|g_i|^2 <= G^2 =
// `second_moment`, step sqrt(n/(T+1)) and c = rho^2 delta / 82 it is
//   mean over t of E|grad f(mean x)|^2 <= (4 (f_0-f*) + 4 sigma^2 L) / sqrt(n (T+1))
//                                         + 24 G^2 n L / (c^2 (T+1))
// as we have it from memory, for T >= 64 n L^2. We have not checked it against the paper's
// text.
double ChocoBound(const SgdProblem& problem, const MixingFactors& factors, double delta,
                  size_t workers, double steps);

// Returns the largest omega that DCD-PSGD (Tang et al., NeurIPS 2018) tolerates. It converges
// with an unbiased codec if (1-rho)^2 - 4 mu^2 omega > 0, where rho = `contraction` and mu is
// the largest |eigenvalue of W - I|. We have this from memory.
double DcdLargestVariance(const MixingFactors& factors);

// Returns whether D^2 (Tang et al., ICML 2018) works with this W, which needs eigenvalues above
// -1/3. Rings of even length with weights of 1/3 lie just there, and the 4 x 4 torus with 1/5
// lies below it: take LazyMixing for them.
bool AllowsD2(const MixingFactors& factors);

}  // namespace elastiquant::theory
