// Who averages with whom in decentralised training, and how fast differences die out.
#pragma once

#include <cstddef>
#include <vector>

namespace elastiquant::theory {

// Worker i takes the sum over j of weight(i, j) x_j. Rows and columns add up to 1.
struct Mixing {
  size_t workers = 0;
  std::vector<double> weights;  // row after row

  double operator()(size_t i, size_t j) const { return weights[i * workers + j]; }
};

// Two neighbours and itself, 1/3 each; `workers` >= 3.
Mixing RingMixing(size_t workers);
// Metropolis: 1 / (1 + the larger of two neighbours' degrees), the rest for itself. `linked` is
// symmetric, row after row; its diagonal is not looked at.
Mixing MetropolisMixing(size_t workers, const std::vector<bool>& linked);
// A grid whose edges meet, with Metropolis weights.
Mixing TorusMixing(size_t rows, size_t columns);
// i takes from i + 2^t for all t < log2 n and itself, equally; n a power of two.
Mixing ExponentialMixing(size_t workers);
// In step t, from i + 2^(t mod log2 n) alone, half and half: log2 n of them average exactly.
Mixing OnePeerMixing(size_t workers, size_t step);
// (I + W) / 2: its eigenvalues are none below 0 if W is symmetric, which D^2 needs.
Mixing LazyMixing(const Mixing& mixing);

struct MixingFactors {
  // |W - 1 1^T / n|: what differences from the mean shrink by in each round, at least. For
  // symmetric and for circulant W the second largest |eigenvalue|: (1 + 2 cos(2 pi/n)) / 3 for
  // the ring.
  double contraction = 0;
  double gap = 1;               // 1 - contraction
  double distance = 0;          // |I - W|
  double least_eigenvalue = 1;  // of (W + W^T) / 2
};
MixingFactors FactorsOf(const Mixing& mixing);

}  // namespace elastiquant::theory
