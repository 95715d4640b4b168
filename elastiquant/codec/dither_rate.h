// Which step gives a message a rate or an error, from the mean absolute values of its blocks
// and what their class costs. Sums and roots only, so that all machines choose the same step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "elastiquant/codec/dither_format.h"

namespace elastiquant {

// The class of a block, from its mean absolute value.
int DitherClassFor(float mean, DitherScale scale, int phase);

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
