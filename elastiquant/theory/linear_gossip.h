// Says how decentralised training goes where it is linear: messages lose nothing, and worker i
// moves by d_i = constant_i - curvature_i x_i in a round. Quadratics are such a problem, and
// any smooth loss is nearly one where training ends, with the curvature of that place. (Our
// derivation; checked against the algorithms as they run, in rates/gossip_rates_test.cc.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "elastiquant/graph/mixing.h"

namespace elastiquant::theory {

// What the algorithms are to such a problem. G = I + gamma (W - I) is the mixing of the round,
// and ' marks what is of the round before.
enum class Recursion : uint8_t {
  kPlain,     // D-PSGD, and DCD and ECD: x <- G x + d
  kD2,        // x <- G (2 x - x' + d - d')
  kTracking,  // y <- G y' + d - d', x <- G (x + y)
  kReplicas,  // CHOCO, DeepSqueeze and SGP: u = x + d, x <- G u
  kLate,      // the same with a delay of one round: x <- u + (G' - I) u'
  kNoLoCo,    // m <- momentum m + rate (d + (G - I) u), x <- x + m
};

struct LinearGossip {
  Recursion recursion = Recursion::kPlain;
  std::vector<Mixing> mixings = {};  // of the rounds of a period, which is one round or more
  size_t elements = 1;               // of the weights
  // Of each worker, the learning rate times the curvature of its loss: elements x elements
  // numbers, row after row.
  std::vector<std::vector<double>> curvatures = {};
  double step = 1;                              // gamma
  double outer_rate = .7, outer_momentum = .3;  // of NoLoCo

  size_t workers() const { return curvatures.size(); }
};

enum class Among : uint8_t {
  kAll,
  // What workers differ by from their mean: for mixings whose rows add up to 1 and workers that
  // have the same curvature, as it is then independent of the mean.
  kDifferences
};

// Returns what the distance from the end is multiplied by in a round, in the end: the largest
// magnitude of an eigenvalue of a period's rounds together, to the power of 1 / period. From 1
// on the distance never dies out. An eigenvalue of 1 that belongs to a quantity which the
// algorithm conserves is not counted. On a mixing whose rows do not add up to 1 weights are
// those that push-sum has made comparable.
double RateOf(const LinearGossip& gossip, Among among);

// Returns where weights end that begin at 0: workers x elements rows of `columns` numbers, one
// for each problem. `constants` has the same shape. They are the weights at the beginning of a
// period, and there are such if the rate is below 1.
std::vector<double> EndOf(const LinearGossip& gossip, std::span<const double> constants,
                          size_t columns);

}  // namespace elastiquant::theory
