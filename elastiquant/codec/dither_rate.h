// Which step gives a message a rate or an error, from the mean absolute values of its blocks
// and what their class costs. Sums and roots only, so that all machines choose the same step.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "elastiquant/codec/dither_format.h"

namespace elastiquant {

// The class of a block, from its mean absolute value: half octaves, rounded.
inline int DitherClassFor(float mean, DitherScale scale, int phase) {
  constexpr float kShift[kDitherPhases] = {1.1892071f, 1.0905077f, 1.0f, 0.9170040f};
  // The mantissas of the floats next to 2^(1/4) and 2^(3/4).
  constexpr uint32_t kQuarter = std::bit_cast<uint32_t>(1.1892071f) & 0x7FFFFF;
  constexpr uint32_t kThreeQuarters = std::bit_cast<uint32_t>(1.6817929f) & 0x7FFFFF;
  const auto bits = std::bit_cast<uint32_t>((mean * scale.pre) * scale.mul * kShift[phase]);
  const uint32_t mantissa = bits & 0x7FFFFF;
  const int octaves = static_cast<int>(bits >> 23) - 127;  // of denormal floats, low enough
  const int half = (mantissa >= kQuarter ? 1 : 0) + (mantissa >= kThreeQuarters ? 1 : 0);
  const int id = std::clamp(2 * octaves + half + kDitherUnitClass, 1, kDitherClasses - 1);
  return mean == 0 ? 0 : id;
}

// How many coordinates have which scale.
class DitherScales {
 public:
  void Add(float mean, size_t coordinates);
  // Bits of the indices at a step of 2^log2_step.
  double Bits(DitherDensity density, int phase, double log2_step) const;
  // The log2 of the step that takes so many bits.
  double StepFor(DitherDensity density, int phase, double bits) const;
  // The phase that takes the fewest bits.
  int BestPhase(DitherDensity density, double log2_step) const;

 private:
  static constexpr size_t kBins = 8 * 288;  // the exponents of floats, an eighth each
  uint32_t counts_[kBins] = {};
  size_t low_ = kBins, high_ = 0;  // all that is counted lies in [low_, high_)
};

// Bits of one index that lies `log2_ratio` octaves above the step in the mean.
double DitherIndexBits(DitherDensity density, int phase, double log2_ratio);

double ExactExp2(double x);
double ExactLog2(double x);  // x normal and positive

}  // namespace elastiquant
