#include "elastiquant/codec/elastic/magnitude_histogram.h"

#include <gtest/gtest.h>

#include <vector>

#include "elastiquant/codec/elastic/magnitude_testing.h"

namespace elastiquant {
namespace {

TEST(MagnitudeHistogram, TellsMomentsAndQuantiles) {
  const std::vector<float> r = Magnitudes(100000);
  Filled filled(r);
  EXPECT_EQ(filled.histogram.mass(), 99999);  // but for the largest
  filled.histogram.Finish();
  for (const double place : {0.001, 0.01, 0.0625, 0.1, 0.3, 0.5, 0.77, 1.0}) {
    double mass = 0, first = 0, second = 0;
    for (const float x : r) {
      if (x >= place) continue;
      mass += 1;
      first += x;
      second += static_cast<double>(x) * x;
    }
    const auto below = filled.histogram.Below(place);
    EXPECT_NEAR(below.mass, mass, 100) << place;
    EXPECT_NEAR(below.first, first, .002 * first + .5) << place;
    EXPECT_NEAR(below.second, second, .002 * second + .5) << place;
    EXPECT_NEAR(filled.histogram.Quantile(below.mass, 0, 1), place, 1e-9) << place;
  }
}

}  // namespace
}  // namespace elastiquant
