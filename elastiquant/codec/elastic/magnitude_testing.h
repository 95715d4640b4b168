// What the tests of magnitudes and of the levels fitted to them share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "elastiquant/codec/elastic/magnitude_histogram.h"

namespace elastiquant {

inline std::vector<float> Laplace(size_t n) {
  std::mt19937 generator(2);
  std::exponential_distribution<float> exponential;
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = exponential(generator) * (i % 2 == 0 ? 1.0f : -1.0f);
  return v;
}

// Relative magnitudes of one bucket, whose norm is 1.
inline std::vector<float> Magnitudes(size_t n) {
  std::vector<float> r = Laplace(n);
  float most = 0;
  for (float& x : r) most = std::max(most, x = std::fabs(x));
  for (float& x : r) x /= most;
  return r;
}

// A histogram of magnitudes, and the memory that it lives in.
struct Filled {
  explicit Filled(const std::vector<float>& r) { histogram.Add(r, 1, 1); }
  std::vector<uint8_t> scratch = std::vector<uint8_t>(MagnitudeHistogram::kScratchBytes);
  MagnitudeHistogram histogram{scratch};
};

}  // namespace elastiquant
