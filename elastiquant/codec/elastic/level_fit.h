// Levels of least variance for one message: what `levels=fit` of the elastic codec sends.
#pragma once

#include <cstddef>
#include <span>

#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/bucket_norm.h"
#include "elastiquant/codec/elastic/magnitude_histogram.h"
#include "elastiquant/codec/levels.h"

namespace elastiquant {

// The largest first level of a set without zero: that of uniform levels, so that no fit is
// coarser about zero than those are.
constexpr double LargestFirstLevel(int bits) { return 1.0 / ((1 << bits) - 1); }

// The sets with and without a zero that have the least variance.
struct FittedLevels {
  LevelSet levels;
  double variance = 0;  // sum of weight (b - r)(r - a)
};
FittedLevels FitWithZero(const MagnitudeHistogram& histogram, int bits);
// bits up to kMostBitsWithoutZero: more bits gain little by it.
inline constexpr int kMostBitsWithoutZero = 4;
FittedLevels FitWithoutZero(const MagnitudeHistogram& histogram, int bits);

// What levels=fit takes for a message, from a sample of its buckets. It depends on the values
// only, not on the random numbers that they are rounded with, which therefore stays unbiased.
// bucket 0: one of all values. Uniform levels if there is nothing to fit, and as if values that
// are not finite were not there.
LevelSet FitLevelsTo(std::span<const float> values, NormOrder norm, size_t bucket, int bits,
                     bool without_zero, Workspace& work);

}  // namespace elastiquant
