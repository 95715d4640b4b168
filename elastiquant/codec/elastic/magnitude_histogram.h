// How the magnitudes of a message's coordinates are distributed, and what lies below any of
// them: what levels are fitted to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "elastiquant/codec/elastic/moments.h"

namespace elastiquant {

// The magnitudes of a message's coordinates relative to the norms of their buckets, r in [0,
// 1], weighted by the squares of these norms: rounding r to levels a <= r <= b adds norm^2 (b -
// r)(r - a) to the squared error. A bin is 1/64 of an octave wide, and its mass is taken to be
// uniform within it. What is below 2^-24 counts as 0. All sums run in one order, so that every
// machine comes to the same levels.
class MagnitudeHistogram {
 public:
  static constexpr int kOctaves = 24, kBinsPerOctave = 64;
  static constexpr size_t kBins = kOctaves * kBinsPerOctave;

  // The histogram lives in `scratch`, memory out of a Workspace, which has kScratchBytes and is
  // aligned to 8.
  static constexpr size_t kScratchBytes = 4 * (kBins + 1) * sizeof(double);
  explicit MagnitudeHistogram(std::span<uint8_t> scratch);

  // Adds finite values of a bucket of this norm, which is positive and finite. Values that are
  // as large as the norm cost nothing under any levels, and are left out.
  void Add(std::span<const float> values, float norm, double weight);
  double mass() const;  // of what was added

  // Sums up the bins, after the last Add and before anything below is called. It spreads a
  // 2^-24th of the mass evenly over all r, so that levels have a place even where no magnitude
  // was seen.
  void Finish();
  // The moments of what is below r, 0 <= r <= 1.
  Moments Below(double r) const;
  // The r in [a, c] that has `mass` below it, or the end that is nearest to it.
  double Quantile(double mass, double a, double c) const;
  // The place where a bin begins, bin <= kBins: 0 for the first, and then
  // 2^-kOctaves (1 + 1/64), 2^-kOctaves (1 + 2/64) and so on up to 1.
  static double Edge(size_t bin);

 private:
  std::span<double> bins_;  // their masses, followed by one more for magnitudes of exactly 1
  std::span<double> mass_, first_, second_;  // the moments below each edge
};

}  // namespace elastiquant
