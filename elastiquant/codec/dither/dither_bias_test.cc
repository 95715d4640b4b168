// Subtractive dither is exactly unbiased as long as nothing but the rounding sees it: neither
// the step nor the form of a frame may depend on the dither that the frame is coded with. Short
// messages would show it best, since their step is chosen from a sample that is all of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/codec/frame.h"

namespace elastiquant {
namespace {

float StepOf(std::span<const uint8_t> frame) {
  float step;
  std::memcpy(&step, frame.data() + kFrameHeaderBytes + 4, sizeof(step));
  return step;
}

struct Bias {
  double together, outward;  // mean error over all draws and coordinates, in mean steps
  double largest;            // |mean error| of the coordinate that has the largest
};
Bias MeasureBias(const std::string& spec, const std::vector<float>& values, int draws) {
  const auto codec = Make(spec);
  const size_t n = values.size();
  Workspace work;
  std::vector<uint8_t> frame(codec->MaxFrameBytes(n));
  std::vector<float> decoded(n);
  std::vector<double> sums(n);
  double steps = 0;
  for (int t = 0; t < draws; ++t) {
    const StreamKey key = DeriveKey(11, static_cast<uint64_t>(t), 0, n);
    const size_t size = codec->Encode(values, key, work, frame).value();
    const std::span<const uint8_t> sent = std::span(frame).first(size);
    EXPECT_TRUE(DecodeFrame(sent, work, decoded).ok());
    steps += static_cast<double>(StepOf(sent));
    for (size_t i = 0; i < n; ++i) sums[i] += static_cast<double>(decoded[i]) - values[i];
  }
  Bias bias{};
  const double step = steps / draws;
  for (size_t i = 0; i < n; ++i) {
    const double mean = sums[i] / draws / step;
    bias.together += mean / static_cast<double>(n);
    bias.outward += (values[i] < 0 ? -mean : mean) / static_cast<double>(n);
    bias.largest = std::max(bias.largest, std::abs(mean));
  }
  return bias;
}

// The power of this test: an error is uniform over a step, so its standard deviation is
// 1/sqrt(12) = .289 of it, and at most .289/sqrt(128 T) for the mean of T = 30000 draws of 128
// coordinates, .000147 (less in truth, as the dither of 16 neighbours is spread out evenly).
// The limit of 4 such deviations is .00059 of a step. A bias of .001 stands 6.8 deviations from
// zero, so that the test misses it with probability P(Z < 4 - 6.8) = .3 %, and fails without
// cause once in 16000 times for each number it looks at. The keys are fixed: it does so always
// or never.
TEST(DitherBias, ShortMessagesHaveNoneOfAThousandthOfAStep) {
  constexpr size_t kSize = 128;
  constexpr int kDraws = 30000;
  const double deviation = 1 / std::sqrt(12.0 * kSize * kDraws);
  const std::vector<float> bell = Gaussian(kSize, 5);
  std::vector<float> spread(kSize);  // from one scale to another, all of one sign
  for (size_t i = 0; i < kSize; ++i) spread[i] = std::exp2(static_cast<float>(i) / 20);
  for (const auto& [spec, name] : {std::pair{"dither:bits=1", "spread"},
                                   {"dither:bits=2", "spread"},
                                   {"dither:bits=2", "bell"}}) {
    SCOPED_TRACE(std::string(spec) + " " + name);
    const Bias bias = MeasureBias(spec, name == std::string("bell") ? bell : spread, kDraws);
    EXPECT_LT(std::abs(bias.together), 4 * deviation);
    EXPECT_LT(std::abs(bias.outward), 4 * deviation);
    // One coordinate by itself: the largest of 128, each within 4.5 deviations of its own.
    EXPECT_LT(bias.largest, 4.5 / std::sqrt(12.0 * kDraws));
  }
}

// A frame holds its values as they are where that is shorter. Were that asked of the size that
// the dither has given, the error of the frames that are dithered would not average out.
TEST(DitherBias, TheFormOfAFrameDoesNotDependOnTheDither) {
  for (const char* spec : {"dither:bits=8", "dither:bits=2", "dither:nmse=1e-06"}) {
    for (size_t n = 1; n < 12; ++n) {
      const auto codec = Make(spec);
      const std::vector<float> values = Gaussian(n, static_cast<unsigned>(n));
      int plain = 0;
      for (uint64_t t = 0; t < 300; ++t) {
        plain += StepOf(Encode(*codec, values, DeriveKey(12, t, 0, n))) == 0 ? 1 : 0;
      }
      EXPECT_TRUE(plain == 0 || plain == 300) << spec << " " << n << ": " << plain;
    }
  }
}

}  // namespace
}  // namespace elastiquant
