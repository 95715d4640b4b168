#include "elastiquant/policy/dither_nmse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/policy/policy_testing.h"
#include "elastiquant/theory/rate_distortion.h"

namespace elastiquant::policy {
namespace {

TEST(DitherNmseTest, InvertsTheRate) {
  for (double bits = .25; bits <= 8; bits += .25) {
    const double nmse = DitherNmse(bits);
    EXPECT_NEAR(DitherBitsFor(nmse), bits, 1e-5) << bits;
    EXPECT_NEAR(theory::DitherBits(std::sqrt(12 * nmse)), bits, 1e-4) << bits;
    EXPECT_LT(DitherNmse(bits + .25), nmse);
    EXPECT_GE(nmse, theory::GaussianLimit(bits)) << bits;
  }
  // A bit halves the step, once steps are fine.
  EXPECT_NEAR(DitherNmse(7) / DitherNmse(8), 4, 4e-3);
}

TEST(DitherNmseTest, HoldsForAnyError) {
  EXPECT_EQ(DitherBitsFor(0), 32);
  EXPECT_EQ(DitherBitsFor(NAN), 32);
  double last = 32;
  for (double nmse = 1e-18; nmse < 1e18; nmse *= 10) {
    const double bits = DitherBitsFor(nmse);
    EXPECT_GE(bits, 0) << nmse;
    EXPECT_LE(bits, last) << nmse;
    last = bits;
  }
  EXPECT_LT(last, 1e-3);
}

// Returns the error that a frame tells, over the squared norm.
double NmseOfFrame(double bits, const std::vector<float>& values) {
  const auto codec = MakeCodec("dither:bits=" + std::to_string(bits)).value();
  std::vector<uint8_t> frame(codec->MaxFrameBytes(values.size()));
  Workspace work;
  const size_t size = codec->Encode(values, StreamKey{5}, work, frame).value();
  frame.resize(size);
  double square = 0;
  for (const float v : values) square += static_cast<double>(v) * static_cast<double>(v);
  return *InspectFrame(frame)->variance * static_cast<double>(values.size()) / square;
}

TEST(DitherNmseTest, IsWhatFramesOfGaussianValuesTellAndBoundsOthers) {
  const auto draw = [](const std::function<double(Draws&)>& value) {
    Draws draws(41, 0);
    std::vector<float> values(1 << 16);
    for (float& v : values) v = static_cast<float>(value(draws));
    return values;
  };
  const std::vector<float> gauss = draw([](Draws& d) { return d.Normal(); });
  const std::vector<float> heavy =
      draw([](Draws& d) { return d.Normal() * std::exp(d.Normal()); });
  for (const double bits : {.75, 1.0, 2.0, 4.0}) {
    EXPECT_NEAR(NmseOfFrame(bits, gauss) / DitherNmse(bits), 1.06, .09) << bits;
    EXPECT_LT(NmseOfFrame(bits, heavy), DitherNmse(bits)) << bits;
  }
}

}  // namespace
}  // namespace elastiquant::policy
