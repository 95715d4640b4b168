// Repeatable random numbers for property tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "elastiquant/base/random.h"

namespace elastiquant::policy {

// Draws from the stream of one test case.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t draw) : keys_(MakeLaneKeys(DeriveKey(seed, draw, 0, 0))) {}

  double Uniform() { return UniformFloat(RandomBits(keys_, next_++)); }  // in [0, 1)
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }
  size_t Below(size_t n) { return static_cast<size_t>(Uniform() * static_cast<double>(n)); }
  // By the transformation of Box and Muller.
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
    return radius * std::cos(2 * std::numbers::pi * Uniform());
  }

 private:
  const LaneKeys keys_;
  uint32_t next_ = 0;
};

}  // namespace elastiquant::policy
