// Says who averages with whom in decentralised training, and how fast differences die out.
#pragma once

#include <cstddef>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

// The weights of an average: worker i takes the sum over j of weight(i, j) x_j. Columns add up
// to 1. So do rows, unless workers take more than they give, which only push-sum can do with.
struct Mixing {
  size_t workers = 0;
  std::vector<double> weights;  // row after row

  double operator()(size_t i, size_t j) const { return weights[i * workers + j]; }
  double& operator()(size_t i, size_t j) { return weights[i * workers + j]; }
};

// Returns the mixing of workers that all keep what they have.
Mixing IdentityMixing(size_t workers);
// Returns Metropolis weights: two neighbours have 1 / (1 + the larger of their degrees), and
// each worker has the rest for itself. `linked` is symmetric, row after row; its diagonal is
// not looked at.
Mixing MetropolisMixing(size_t workers, const std::vector<bool>& linked);
// Returns the mixing in which each worker averages itself and its two neighbours, which has
// weights of 1/3 from 3 workers on.
Mixing RingMixing(size_t workers);
// Returns the Metropolis weights of a grid whose opposite edges meet.
Mixing TorusMixing(size_t rows, size_t columns);
// Returns the mixing in which i takes from i + 2^t, for all 2^t < n, and from itself, all with
// the same weight.
Mixing ExponentialMixing(size_t workers);
// Returns the mixing of step t, in which i takes half from i + 2^(t mod h) and half from
// itself, where 2^h is the least power that is not below n. If n is a power of two, h such
// steps average exactly.
Mixing OnePeerMixing(size_t workers, size_t step);
// Returns (I + W) / 2. If W is symmetric, no eigenvalue of it is below 0, which is enough for
// D^2.
Mixing LazyMixing(const Mixing& mixing);
// Returns W_last ... W_0: what the steps do together.
Mixing ProductOf(const std::vector<Mixing>& steps);

// Fails with kInvalidArgument, naming the row or column, unless all weights are finite and not
// negative, and each row and each column adds up to 1 within 1e-6.
Status CheckDoublyStochastic(const Mixing& mixing);
// The same of the columns only.
Status CheckColumns(const Mixing& mixing);
bool IsSymmetric(const Mixing& mixing);
// Of a symmetric W, from the least one on.
std::vector<double> SymmetricEigenvalues(const Mixing& mixing);

// What bounds on decentralised training depend on. Norms of matrices are spectral norms.
struct MixingFactors {
  // |W - 1 1^T / n|. In each round differences from the mean are multiplied by this at most.
  // For symmetric and for circulant W it is the second largest |eigenvalue|, which for the ring
  // of n workers is (1 + 2 cos(2 pi/n)) / 3.
  double contraction = 0;
  double gap = 1;               // 1 - contraction
  double distance = 0;          // |I - W|
  double least_eigenvalue = 1;  // the least eigenvalue of (W + W^T) / 2
};
MixingFactors FactorsOf(const Mixing& mixing);

}  // namespace elastiquant
