// Fits levels of least variance to one message, as `levels=fit` of the elastic codec does.
#pragma once

#include <cstddef>
#include <span>

#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/bucket_norm.h"
#include "elastiquant/codec/elastic/magnitude_histogram.h"
#include "elastiquant/codec/levels.h"

namespace elastiquant {

// Returns the largest first level that a set without zero may have. It is that of uniform
// levels, so that no fit is coarser about zero than those are.
constexpr double LargestFirstLevel(int bits) { return 1.0 / ((1 << bits) - 1); }

struct FittedLevels {
  LevelSet levels;
  double variance = 0;  // the sum of weight (b - r)(r - a)
};
// Returns the set with a zero that has the least variance.
FittedLevels FitWithZero(const MagnitudeHistogram& histogram, int bits);
// Returns the set without a zero that has the least variance, for at most kMostBitsWithoutZero
// bits. With more bits there is little to gain by it.
inline constexpr int kMostBitsWithoutZero = 4;
FittedLevels FitWithoutZero(const MagnitudeHistogram& histogram, int bits);

// Returns the levels that levels=fit takes for a message, fitted to a sample of its buckets.
// They depend only on the values, not on the random numbers that these are rounded with, so
// rounding stays unbiased. If bucket is 0, all values are one bucket. The levels are uniform if
// there is nothing to fit. Values that are not finite are treated as if they were not there.
LevelSet FitLevelsTo(std::span<const float> values, NormOrder norm, size_t bucket, int bits,
                     bool without_zero, Workspace& work);

}  // namespace elastiquant
