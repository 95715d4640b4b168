// Levels of least variance for one message: what `levels=fit` of the elastic codec sends.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/bucket_norm.h"
#include "elastiquant/codec/levels.h"

namespace elastiquant {

// The magnitudes of a message's coordinates relative to the norms of their buckets, r in [0,
// 1], weighted by the squares of these norms: rounding r to levels a <= r <= b adds norm^2 (b -
// r)(r - a) to the squared error. Bins are 1/64 of an octave wide and taken for uniform within;
// what is below 2^-24 counts as 0. All sums run in one order, so that every machine comes to
// the same levels.
class MagnitudeHistogram {
 public:
  static constexpr int kOctaves = 24, kBinsPerOctave = 64;
  static constexpr size_t kBins = kOctaves * kBinsPerOctave;

  // Mass, and sums of r and r^2, of all that is below some place.
  struct Moments {
    double mass = 0, first = 0, second = 0;
  };

  // Memory for one, out of a Workspace: `scratch` has kScratchBytes, aligned to 8.
  static constexpr size_t kScratchBytes = 4 * (kBins + 1) * sizeof(double);
  explicit MagnitudeHistogram(std::span<uint8_t> scratch);

  // Finite values of a bucket of this norm, which is positive and finite. What is as large as
  // the norm costs nothing under any levels, and is left out.
  void Add(std::span<const float> values, float norm, double weight);
  double mass() const;  // of what was added

  // Before the following, and after all Add: sums up the bins. A 2^-24th of the mass is spread
  // evenly over all r, so that levels have a place even where no magnitude was seen.
  void Finish();
  // 0 <= r <= 1.
  Moments Below(double r) const;
  // The r in [a, c] that has `mass` below it, or the nearest end.
  double Quantile(double mass, double a, double c) const;
  // Where a bin begins: 0, and from 1 on 2^-kOctaves (1 + k/64) and so on. bin <= kBins.
  static double Edge(size_t bin);

 private:
  std::span<double> bins_;                   // and behind them one for 1 itself
  std::span<double> mass_, first_, second_;  // below each edge
};

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
