#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "elastiquant/base/number.h"
#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/codec/frame.h"

namespace elastiquant {
namespace {

// Standard deviation 4.949747, so the clip at 12.37 leaves the scale at 10.
TEST(TernGrad, KeepsACoordinateIffTheRandomNumberIsBelowItsShare) {
  const std::vector<float> v{1, -2, 3, -10};
  for (uint64_t key = 0; key < 300; ++key) {
    const std::vector<float> q = RoundTrip("terngrad", v, key);
    for (uint32_t i = 0; i < 4; ++i) {
      const double u = RandomBits(MakeLaneKeys({key}), i) * 0x1p-32;
      const float kept = v[i] < 0 ? -10.0f : 10.0f;
      ASSERT_EQ(q[i], u < std::abs(v[i]) / 10 ? kept : 0) << "u = " << u;
    }
  }
}

TEST(TernGrad, ClipsAtTwoAndAHalfStandardDeviations) {
  std::vector<float> v(100, 1.0f);
  for (size_t i = 0; i < 50; ++i) v[i] = -1;
  v[99] = 1000;
  // The mean is taken off: sigma^2 = mean of squares - mean^2.
  const double mean = (1000.0 - 1) / 100, sigma = std::sqrt((99 + 1e6) / 100 - mean * mean);
  const std::vector<float> q = RoundTrip("terngrad", v);
  EXPECT_NEAR(q[99], 2.5 * sigma, 1e-3);
  EXPECT_EQ(RoundTrip("terngrad:clip=0", v)[99], 1000);
  EXPECT_EQ(RoundTrip("terngrad:clip=1000", v)[99], 1000);
}

TEST(TernGrad, ValuesThatAreAllTheSameAreNotCut) {
  const std::vector<float> v(300, -0.7f);
  EXPECT_EQ(RoundTrip("terngrad", v), v);
}

// The testbed makes one run for both.
TEST(TernGrad, WithoutClippingItIsElasticWithLevelsAtTheLargestValue) {
  const std::vector<float> v = Gaussian(5000);
  const uint64_t key = DeriveKey(1, 2, 0, 0).value;
  EXPECT_EQ(RoundTrip("terngrad:clip=0", v, key),
            RoundTrip("elastic:bits=2,levels=1,norm=linf,bucket=2048", v, key));
}

// Tensors of one value, of a few, and longer than the tiles that messages are cut into; the
// first one is a thousand times as large as the others.
const std::vector<TensorShape> kTernaryTensors{{10, 10}, {1, 1},  {1, 150},
                                               {0, 7},   {50, 1}, {260, 260}};

std::vector<float> TensorValues() {
  std::vector<float> v = Gaussian(67901);
  for (size_t i = 0; i < 100; ++i) v[i] *= 1000;
  return v;
}

std::shared_ptr<const Codec> ByTensor(const std::string& spec) {
  return CodecForShapes(Make(spec), kTernaryTensors).value();
}

// What a tensor may be at most: `clip` of its own standard deviations, its largest value with
// 0.
double MostOf(std::span<const float> tensor, double clip) {
  double largest = 0, sum = 0, squares = 0;
  for (const float x : tensor) {
    largest = std::max(largest, std::abs(static_cast<double>(x)));
    sum += x;
    squares += static_cast<double>(x) * x;
  }
  const auto d = static_cast<double>(tensor.size());
  const double sigma = std::sqrt(squares / d - sum / d * sum / d);
  return clip > 0 && tensor.size() > 1 ? std::min(clip * sigma, largest) : largest;
}

// fn(first coordinate, size) for each of kTernaryTensors.
template <class Fn>
void ForEachTensor(const Fn& fn) {
  size_t begin = 0;
  for (const TensorShape& shape : kTernaryTensors) {
    fn(begin, shape.rows * shape.cols);
    begin += shape.rows * shape.cols;
  }
}

// As published: one standard deviation and one scale for each tensor of a message.
TEST(TernGrad, ByTensorEachHasItsOwnScaleAndClip) {
  const std::vector<float> v = TensorValues();
  for (const std::string coding : {"", "|rans"}) {
    for (const float clip : {0.0f, 1.5f, 2.5f}) {
      const auto codec =
          ByTensor("terngrad:clip=" + NumberText(clip) + ",bucket=tensor" + coding);
      EXPECT_EQ(codec->exchange(), Exchange::kAllGather);
      const auto frame = Encode(*codec, v, {3});
      EXPECT_EQ(Encode(*codec, v, {3}, 3), frame);
      const std::vector<float> q = Decode(frame, v.size());
      ForEachTensor([&](size_t begin, size_t n) {
        const double scale = MostOf(std::span(v).subspan(begin, n), clip);
        size_t kept = 0;
        for (size_t i = begin; i < begin + n; ++i) {
          if (q[i] == 0) continue;
          ++kept;
          EXPECT_EQ(std::signbit(q[i]), std::signbit(v[i]));
          EXPECT_NEAR(std::abs(q[i]), scale, 1e-6 * scale);
        }
        EXPECT_EQ(kept > 0, n > 0);
      });
    }
  }
}

// The mean of each coordinate is the value, or where its tensor is cut off; the variance of
// each tensor is s |v|_1 - |v|_2^2 with its own s, of what was cut.
TEST(TernGrad, ByTensorTheMeanIsWhatWasClipped) {
  const std::vector<float> v = TensorValues();
  constexpr int kDraws = 300;
  for (const float clip : {0.0f, 2.0f}) {
    const auto codec = ByTensor("terngrad:clip=" + NumberText(clip) + ",bucket=tensor");
    std::vector<double> mean(v.size());
    for (uint64_t key = 0; key < kDraws; ++key) {
      const std::vector<float> q = Decode(Encode(*codec, v, {key}), v.size());
      for (size_t i = 0; i < v.size(); ++i) mean[i] += static_cast<double>(q[i]) / kDraws;
    }
    ForEachTensor([&](size_t begin, size_t n) {
      const double s = MostOf(std::span(v).subspan(begin, n), clip);
      double variances = 0, squared = 0;
      for (size_t i = begin; i < begin + n; ++i) {
        const double x = std::clamp<double>(v[i], -s, s);
        const double variance = (s * std::abs(x) - x * x) / kDraws;
        const double error = mean[i] - x;
        variances += variance;
        squared += error * error;
        EXPECT_LT(std::abs(error), 6 * std::sqrt(variance) + s / 30) << i;
      }
      if (n > 1) {
        EXPECT_NEAR(squared / variances, 1, 8 * std::sqrt(3.0 / static_cast<double>(n)));
      }
    });
  }
}

TEST(TernGrad, ByTensorEveryDamagedByteIsRefusedOrHarmless) {
  const std::vector<TensorShape> shapes{{5, 6}, {1, 7}, {1, 90}};
  for (const char* spec : {"terngrad:bucket=tensor", "terngrad:bucket=tensor|rans"}) {
    SCOPED_TRACE(spec);
    const auto codec = CodecForShapes(Make(spec), shapes).value();
    const auto step = [](size_t at) { return at < kFrameHeaderBytes ? 0 : 7; };
    const auto frame = Encode(*codec, Gaussian(127), {9});
    EXPECT_GT(ExpectDamageIsRefusedOrHarmless(frame, 127, step), 800u);
  }
}

TEST(TernGrad, ByTensorMessagesMustBeOfItsTensors) {
  const auto codec = ByTensor("terngrad:bucket=tensor");
  const std::vector<float> v = Gaussian(100);
  Workspace work;
  std::vector<uint8_t> frame(codec->MaxFrameBytes(v.size()));
  const Status status = codec->Encode(v, {1}, work, frame).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("67901"), std::string::npos) << status.message();
}

TEST(TernGrad, ByTensorNamesWhatCannotBeEncoded) {
  const auto codec = Make("terngrad:bucket=tensor");
  for (const float bad : {std::nanf(""), -HUGE_VALF}) {
    std::vector<float> v = Gaussian(100);
    v[41] = bad;
    Workspace work(1);
    std::vector<uint8_t> frame(codec->MaxFrameBytes(v.size()));
    const auto size = codec->Encode(v, {1}, work, frame);
    ASSERT_FALSE(size.ok());
    EXPECT_EQ(size.status().code(), StatusCode::kNonFinite);
    EXPECT_NE(size.status().message().find("41"), std::string::npos);
  }
  EXPECT_FALSE(MakeCodec("terngrad:bucket=tensor,scale=1").ok());
}

TEST(TernGrad, SharedScaleIsTheSameForAll) {
  const std::vector<float> q = RoundTrip("terngrad:scale=2,bucket=16", Gaussian(1000));
  for (const float x : q) EXPECT_TRUE(x == 0 || std::abs(x) == 2) << x;
  EXPECT_EQ(Make("terngrad:scale=2")->codec_class(), CodecClass::kBiased);
}

// s |v|_1 - |v|_2^2.
TEST(TernGrad, VarianceIsThatOfTheFormula) {
  const std::vector<float> v = Gaussian(700);
  double l1 = 0, l2 = 0, s = 0;
  for (const float x : v) {
    l1 += std::abs(static_cast<double>(x));
    l2 += static_cast<double>(x) * x;
    s = std::max(s, std::abs(static_cast<double>(x)));
  }
  double sum = 0;
  constexpr int kDraws = 400;
  for (uint64_t t = 0; t < kDraws; ++t) {
    sum += Nmse(v, RoundTrip("terngrad:clip=0", v, DeriveKey(1, t, 0, 0).value));
  }
  EXPECT_NEAR(sum / kDraws, s * l1 / l2 - 1, .02 * s * l1 / l2);
}

// One coordinate of s, the others of s / (1 + sqrt d): the worst vector there is.
TEST(TernGrad, TheBoundIsMet) {
  constexpr size_t d = 256;
  std::vector<float> v(d, 1.0f / 17);
  v[0] = 1;
  double sum = 0;
  constexpr int kDraws = 3000;
  for (uint64_t t = 0; t < kDraws; ++t) {
    sum += Nmse(v, RoundTrip("terngrad:clip=0", v, DeriveKey(1, t, 0, 0).value));
  }
  const auto bound = Make("terngrad:clip=0")->NmseBound(d);
  ASSERT_TRUE(bound.has_value());
  EXPECT_NEAR(*bound, (16.0 - 1) / 2, 1e-4);
  EXPECT_NEAR(sum / kDraws, *bound, .15);
}

TEST(TernGrad, FiveDigitsTakeAByte) {
  EXPECT_EQ(Encode(*Make("terngrad:bucket=0"), Gaussian(20000), {1}).size(),
            32u + 12 + 4 + 4000);
}

TEST(TernGrad, ErrorsNameTheCodecAndWhatIsValid) {
  const auto message = [](const char* spec) { return MakeCodec(spec).status().message(); };
  EXPECT_EQ(message("terngrad:clip=-1"),
            "codec 'terngrad': clip=-1 is not valid; use 0 for none, or a number from 1e-45 to "
            "1000");
  EXPECT_EQ(
      message("terngrad:scale=1e-50"),
      "codec 'terngrad': scale=1e-50 is not valid; use 0 for none, or a number from 1e-45 "
      "to 1e+30");
  EXPECT_EQ(message("terngrad:scale=1,clip=2"),
            "codec 'terngrad': scale is a clip of its own; give no other");
}

}  // namespace
}  // namespace elastiquant
