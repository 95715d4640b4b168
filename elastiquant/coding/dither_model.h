// The distributions that the dither codec expects of its indices. They follow from the class of
// a block and the phase of the message alone, so that no table is ever sent. They are made of
// integers only, so that all machines agree on them (docs/frame-format.md, "dither").
#pragma once

#include <cstdint>
#include <vector>

#include "elastiquant/kernels/dither/dither_kernels.h"

namespace elastiquant {

// The numbers are stable, because they travel in frames.
enum class DitherDensity : uint8_t { kLaplace = 0, kGauss = 1 };
inline constexpr int kDitherPhases = 4;
inline constexpr int kNeutralPhase = 2;

// Returns the scale of a class, in eighths of an octave above the step. For both densities the
// scale is the mean of |x|, which is sqrt(2 / pi) of the standard deviation for Gauss.
constexpr int DitherScaleOf(int id, int phase) {
  return 4 * (id - kDitherUnitClass) + phase - kNeutralPhase;
}

// Returns the frequencies of all classes. They are made at the first call and kept.
const DitherModel& GetDitherModel(DitherDensity density, int phase);

// Gives the probabilities of an index's symbols where the true scale is `scale`, for one bin of
// the dither. They are integers in proportion to the probabilities.
class DitherMasses {
 public:
  DitherMasses(DitherDensity density, int scale);
  // Sets masses[symbol] for each symbol of class `c`, and returns their sum.
  uint64_t OfSymbols(const DitherClass& c, int bin, std::vector<uint64_t>* masses) const;

 private:
  // Returns twice the sum of the distribution function over the parts below a boundary.
  uint64_t TwicePrefix(int64_t boundary) const;
  std::vector<uint64_t> prefix_;  // at the boundaries of parts, 64 to a cell
};

}  // namespace elastiquant
