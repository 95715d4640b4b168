// The distributions that the dither codec expects of its indices. They follow from the class of
// a block and the phase of the message alone, so that no table is ever sent, and are made of
// integers only, so that all machines agree on them (docs/frame-format.md, "dither").
#pragma once

#include <cstdint>
#include <vector>

#include "elastiquant/kernels/dither/dither_kernels.h"

namespace elastiquant {

// Stable numbers: they travel in frames.
enum class DitherDensity : uint8_t { kLaplace = 0, kGauss = 1 };
inline constexpr int kDitherPhases = 4;
inline constexpr int kNeutralPhase = 2;

// The scale of a class in eighths of an octave over the step. Laplace: the mean of |x|. Gauss:
// the mean of |x| too, sqrt(2 / pi) of the standard deviation.
constexpr int DitherScaleOf(int id, int phase) {
  return 4 * (id - kDitherUnitClass) + phase - kNeutralPhase;
}

// Made at the first call and kept.
const DitherModel& GetDitherModel(DitherDensity density, int phase);

// Probabilities, as integers in proportion, of the symbols of an index that has `class` where
// its true scale is `scale`, for one bin of the dither.
class DitherMasses {
 public:
  DitherMasses(DitherDensity density, int scale);
  // masses[symbol]; all add up to the result.
  uint64_t OfSymbols(const DitherClass& c, int bin, std::vector<uint64_t>* masses) const;

 private:
  uint64_t TwicePrefix(int64_t boundary) const;
  std::vector<uint64_t> prefix_;  // at the boundaries of parts of 1/64 of a cell
};

}  // namespace elastiquant
