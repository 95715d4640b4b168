// What some blocks of a message really take, for a rate that is met whatever the values look
// like. Sums, quotients and tables only, so that all machines come to the same step.
#pragma once

#include <cstdint>
#include <span>

#include "elastiquant/codec/dither/dither_rate.h"

namespace elastiquant {

class DitherSample {
 public:
  // Takes of the blocks of each class, at a step of 2^log2_step, as many as the class has of
  // the message's bits, at even distances. `means` and `classes` have one for each block; the
  // latter is scratch. `keys`: of the sample's dither, which must not be the message's.
  DitherSample(std::span<const float> values, std::span<const float> means,
               std::span<uint8_t> classes, LaneKeys keys, double log2_step);
  // An estimate of the bits of all indices at another step, from one in `part` of the sample;
  // none without any full block.
  double Bits(DitherDensity density, int phase, float step, uint32_t part = 1) const;
  bool empty() const { return count_ == 0; }

 private:
  void CountClasses(std::span<const uint8_t> classes);

  static constexpr size_t kMost = 1024;

  std::span<const float> values_, means_;
  LaneKeys keys_;
  size_t count_ = 0;
  uint32_t picks_[kMost + kDitherClasses];
  struct Stratum {
    uint32_t blocks, picked;
  };
  Stratum strata_[kDitherClasses] = {};
};

}  // namespace elastiquant
