// Levels of least error for given values: stochastic rounding to b_0 < ... < b_s costs
// sum (b_(k+1) - v)(v - b_k), which sets of levels make least. The least and the largest value
// are levels always.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace elastiquant {

// All: `sorted` is finite, increasing (equal values may repeat) and not empty, of at most 32768
// values; `levels` are written in increasing order. -0 must not be among the values: sorting
// may leave it on either side of 0. Sums are plain double arithmetic, so that all machines
// choose the same levels.

// ORQ: the best middle for both ends, and so on in both halves. levels: 2^k + 1.
// (Xu, Huo and Huang, "Optimal Gradient Quantization Condition", 2020.)
void OrqLevels(std::span<const float> sorted, std::span<double> sums, std::span<float> levels);

// The least error there is, QUIVER (Ben-Basat et al., 2024): a dynamic program over the values,
// which are candidates enough, with divide and conquer in each of its rounds. levels: 2 or
// more.
void QuiverLevels(std::span<const float> sorted, std::span<uint8_t> scratch,
                  std::span<float> levels);
size_t QuiverScratchBytes(size_t values, size_t levels);

// The same over `bins` + 1 places evenly spread from the least value to the largest; values
// need not be sorted. A value is shared between the places at its sides so that its mean stays:
// then the program's objective differs from the true one by a constant, and the result is the
// best set of levels among all on these places.
void QuiverGridLevels(std::span<const float> values, size_t bins, std::span<uint8_t> scratch,
                      std::span<float> levels);

}  // namespace elastiquant
