// Says how decentralised training goes on quadratics, exactly: f_i(x) = h/2 |x - b_i|^2 with
// minima b_i that differ, steps of eta h = `curvature`, and messages that lose nothing. In the
// eigenvectors of a symmetric W, what the workers' weights differ by obeys a recursion of its
// own for each eigenvalue. (Our derivation; checked against the algorithms as they run, in
// cli/gossip_rates_test.cc.)
#pragma once

#include <cstdint>
#include <span>

namespace elastiquant::theory {

// What the algorithms are to such a problem.
enum class Recursion : uint8_t {
  kPlain,     // D-PSGD, and DCD and ECD: x <- W x + d
  kD2,        // x <- W (2 x - x' + d - d')
  kTracking,  // y <- W y' + d - d', x <- W (x + y)
  kReplicas,  // CHOCO, DeepSqueeze and SGP, with a step gamma: u = x + d, x <- u + gamma (W -
              // I) u
  kLate,      // the same with a delay of one round: x <- u + gamma (W - I) u'
};

struct QuadraticOutcome {
  // What differences are multiplied by in a round, in the end; from 1 on they never die out.
  double rate = 0;
  // The root of the mean of |x_i - mean x|^2 that is left in the end, as a part of that of the
  // minima, if these are unrelated. D^2 and gradient tracking leave nothing.
  double left = 0;
};

// `eigenvalues` are those of W, of which the largest is 1 and belongs to the mean. `curvature`
// is above 0 and below 2, and `step` is gamma.
QuadraticOutcome OnQuadratics(Recursion recursion, std::span<const double> eigenvalues,
                              double curvature, double step);

}  // namespace elastiquant::theory
