// Says how AD-PSGD goes where it is linear, as linear_gossip.h does for algorithms that meet in
// rounds: worker i moves by d_i = constant_i - curvature_i x_i. Pairs meet at random, so that
// only mean squares are known. (Our derivation, from the second moments of products of random
// matrices, as for randomised gossip: Boyd et al., IEEE Trans. Inf. Theory 52(6), 2006.)
//
// All workers are taken to be equally fast. In a round all compute their steps at the weights
// of its beginning, those that answer move by theirs, and those that ask, one after the other,
// average with one that they pick at random, and then move by theirs. Workers that agree differ
// after such a round, as some average before they have moved and others after it: what they
// differ by dies out no faster than all distances do.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace elastiquant::theory {

struct PairGossip {
  // Of each worker, those that it may ask, all equally likely; none of a worker that answers.
  std::vector<std::vector<size_t>> asked = {};
  size_t elements = 1;                               // of the weights
  std::vector<std::vector<double>> curvatures = {};  // as in LinearGossip
  double step = 1;                                   // gamma

  size_t workers() const { return curvatures.size(); }
};

// Returns the root of what the mean square distance between two runs, which pick the same
// neighbours and begin apart, is multiplied by in a round, in the end.
double RateOf(const PairGossip& gossip);

// Returns the mean products of all weights with each other in the end, at the beginning of a
// round: n x n numbers for n = workers x elements. `constants` are such products of the
// constants, of which the weights' are a linear function. The rate must be below 1.
std::vector<double> EndProductsOf(const PairGossip& gossip, std::span<const double> constants);

}  // namespace elastiquant::theory
