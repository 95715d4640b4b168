// Which step gives a message a rate or an error, from the mean absolute values of its blocks
// and what their class costs. Sums and roots only, so that all machines choose the same step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "elastiquant/codec/dither/dither_format.h"

namespace elastiquant {

// The classes of blocks, from their mean absolute values.
void DitherClassesFor(std::span<const float> means, DitherScale scale, int phase,
                      uint8_t* classes);

// How many coordinates have which scale.
class DitherScales {
 public:
  // Of blocks whose means are given, all of so many coordinates.
  void Add(std::span<const float> means, size_t coordinates);
  // Bits of the indices at a step of 2^log2_step.
  double Bits(DitherDensity density, int phase, double log2_step) const;
  // The log2 of the step that takes so many bits, between `low` and `high`.
  double StepFor(DitherDensity density, int phase, double bits, double low, double high) const;
  // Steps below and above which nothing changes any more.
  double LeastStep() const;
  double LargestStep() const;
  // The phase that takes the fewest bits.
  int BestPhase(DitherDensity density, double log2_step) const;

 private:
  static constexpr size_t kBins = 8 * 288;  // the exponents of floats, an eighth each
  uint32_t counts_[kBins] = {};
  size_t low_ = kBins, high_ = 0;  // all that is counted lies in [low_, high_)
};

// Bits of one index that lies `log2_ratio` octaves above the step in the mean.
double DitherIndexBits(DitherDensity density, int phase, double log2_ratio);

// The classes of blocks are sent as differences: how often which, and what they cost.
class DitherDifferences {
 public:
  // Of each class from the one before it, 0 for the first.
  explicit DitherDifferences(std::span<const uint8_t> classes);
  // The class of index blocks that takes the fewest bits for them.
  int BestClass() const;
  double Bits(int id) const;

 private:
  static constexpr size_t kParts = 4;
  uint32_t counts_[kParts][2 * kDitherClasses] = {};  // side by side: one would wait for itself
};

double ExactExp2(double x);
double ExactLog2(double x);  // x normal and positive
// 2^log2_step as a float, one that is positive and finite.
float DitherStep(double log2_step);

}  // namespace elastiquant
