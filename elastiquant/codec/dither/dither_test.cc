#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/codec/dither/dither_code.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  double bits, nmse, told;
};
Outcome Measure(const std::string& spec, const std::vector<float>& values,
                StreamKey key = {3}) {
  const std::vector<uint8_t> frame = Encode(*Make(spec), values, key);
  Workspace work;
  std::vector<float> decoded(values.size());
  EXPECT_TRUE(DecodeFrame(frame, work, decoded).ok());
  double error = 0, norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = values[i];
    error += (decoded[i] - v) * (decoded[i] - v);
    norm += v * v;
  }
  const double n = static_cast<double>(values.size());
  return {8 * static_cast<double>(frame.size()) / n, error / norm,
          InspectFrame(frame)->variance.value() * n / norm};
}

// Layers of different scales, Gaussian within a block.
std::vector<float> Layers(size_t n) {
  std::vector<float> values = Gaussian(n);
  for (size_t i = 0; i < n; ++i) {
    values[i] *= std::exp2(static_cast<float>(i / 5000 % 11) - 20);
  }
  return values;
}

// What the tables of the models know nothing of.
std::vector<float> Wild(const std::string& kind, size_t n) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  std::student_t_distribution<float> student(2);
  std::uniform_real_distribution<float> uniform;
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    const float x = normal(generator), u = uniform(generator);
    values[i] = kind == "cubed"     ? x * x * x
                : kind == "tails"   ? student(generator)
                : kind == "mixed"   ? x * std::exp2(20 * u - 10)
                : kind == "uniform" ? u - 0.5f
                : kind == "signs"   ? std::copysign(1.0f, x)
                : kind == "sparse"  ? (u < 0.01f ? x : 0)
                : kind == "sparser" ? (u < 0.001f ? x : 0)
                : kind == "patches" ? (i / 1000 % 10 == 0 ? x : 0)
                                    : x;  // "gaussian"
  }
  return values;
}

TEST(Dither, RateIsMetByRealFrames) {
  constexpr size_t kSize = 1 << 18;
  const std::vector<float> layers = Layers(kSize);
  for (const char* bits : {"0.5", "1", "1.7", "2", "3", "4", "6.25", "8"}) {
    const double rate = std::stod(bits);
    EXPECT_NEAR(Measure("dither:bits=" + std::string(bits), layers).bits / rate, 1, 0.02);
  }
  for (const char* kind :
       {"gaussian", "cubed", "tails", "mixed", "uniform", "signs", "sparse"}) {
    const std::vector<float> values = Wild(kind, kSize);
    for (const char* bits : {"1", "2", "3", "4", "8"}) {
      const Outcome outcome = Measure("dither:bits=" + std::string(bits), values);
      EXPECT_NEAR(outcome.bits / std::stod(bits), 1, 0.02) << kind << " " << bits;
    }
    for (const char* model : {"gauss", "laplace"}) {
      const Outcome outcome = Measure(std::string("dither:model=") + model, values);
      const double tolerance = kind == std::string("signs") ? 0.06 : 0.02;
      EXPECT_NEAR(outcome.bits / 2, 1, tolerance) << kind << " " << model;
    }
  }
  for (const char* kind : {"sparser", "patches"}) {
    for (const char* bits : {"0.5", "1"}) {
      const Outcome outcome = Measure("dither:bits=" + std::string(bits), Wild(kind, kSize));
      EXPECT_NEAR(outcome.bits / std::stod(bits), 1, 0.02) << kind << " " << bits;
    }
  }
}

// A coordinate has at most some 24 bits to tell; there may be too few for the rate.
TEST(Dither, FramesStayBelowTheRateWhereThereIsTooLittleToTell) {
  const Outcome outcome = Measure("dither:bits=8", Wild("sparser", 1 << 17));
  EXPECT_LT(outcome.bits, 8);
  EXPECT_LT(outcome.nmse, 1e-9);
}

// Where coded tiles would take more, they are plain.
// A rate that a message is too short for must not blow up its error.
TEST(Dither, ShortMessagesKeepTheirErrorSmallRatherThanTheirRate) {
  const auto codec = MakeCodec("dither:bits=0.5").value();
  for (const size_t n : {1, 2, 7, 31, 129}) {
    std::vector<float> values(n), decoded(n);
    for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 5) - 1.5f;
    Workspace work;
    std::vector<uint8_t> frame(codec->MaxFrameBytes(n));
    double squares = 0, error = 0;
    for (const float v : values) squares += static_cast<double>(v) * v;
    for (uint64_t draw = 0; draw < 200; ++draw) {
      const size_t size = codec->Encode(values, DeriveKey(1, draw, 0, n), work, frame).value();
      ASSERT_TRUE(DecodeFrame({frame.data(), size}, work, decoded).ok());
      for (size_t i = 0; i < n; ++i) error += std::pow(decoded[i] - values[i], 2);
    }
    EXPECT_LE(error / 200, 1.2 * kMostDitherError * squares) << n;  // a mean of draws
    EXPECT_EQ(codec->NmseBound(n), codec->NmseBound(1));
  }
}

TEST(Dither, FramesAreNeverMuchLongerThanTheirValues) {
  std::vector<float> values(1 << 18, 1e-3f);
  for (size_t i = 0; i < values.size(); i += 40) values[i] = 1e30f;
  for (size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{100}, values.size()}) {
    for (const char* spec : {"dither:nmse=1e-06", "dither:bits=8"}) {
      const auto codec = Make(spec);
      EXPECT_LE(codec->MaxFrameBytes(n), 4 * n + 128);
      const std::vector<float> some(values.begin(), values.begin() + static_cast<ptrdiff_t>(n));
      const std::vector<uint8_t> frame = Encode(*codec, some, {3});
      EXPECT_LE(frame.size(), 4 * n + 128);
    }
  }
}

TEST(Dither, VarianceIsThatWhichFramesTell) {
  for (const char* spec : {"dither:bits=0.5", "dither:bits=2", "dither:bits=7,model=laplace",
                           "dither:nmse=0.01", "dither:nmse=2"}) {
    const Outcome outcome = Measure(spec, Layers(100000));
    EXPECT_NEAR(outcome.nmse / outcome.told, 1, 0.02) << spec;
  }
}

TEST(Dither, ErrorTargetIsMetExactly) {
  for (double nmse : {1e-6, 1e-3, 0.05, 3.0}) {
    const std::string spec = "dither:nmse=" + std::to_string(nmse);
    EXPECT_NEAR(Measure(spec, Layers(70001)).told / nmse, 1, 1e-4) << spec;
    EXPECT_NEAR(Measure(spec, Gaussian(300)).told / nmse, 1, 1e-4) << spec;
  }
}

// 1/(4^R - 1) is the least error of unbiased codes of a Gaussian source.
TEST(Dither, GaussianInputComesNearTheLimit) {
  const std::vector<float> values = Gaussian(1 << 19);
  for (const char* bits : {"2", "3", "4"}) {
    const Outcome outcome = Measure("dither:model=gauss,bits=" + std::string(bits), values);
    const double limit = 1 / (std::pow(4, outcome.bits) - 1);
    EXPECT_LT(10 * std::log10(outcome.nmse / limit), 1.8) << bits;
  }
}

TEST(Dither, BlocksOfZerosStayZeroAndCostLittle) {
  std::vector<float> values(1 << 17, 0.0f);
  for (size_t i = 12800; i < 25600; ++i) values[i] = 1;
  const std::vector<uint8_t> frame = Encode(*Make("dither:nmse=0.01"), values, {4});
  Workspace work;
  std::vector<float> decoded(values.size());
  ASSERT_TRUE(DecodeFrame(frame, work, decoded).ok());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) {
      EXPECT_EQ(decoded[i], 0.0f);
    }
  }
  EXPECT_LT(frame.size(), 12800u);
}

TEST(Dither, SpansTheWholeRangeOfFloats) {
  for (int exponent : {-148, -126, -100, 0, 60, 100, 119}) {
    std::vector<float> values = Gaussian(4000);
    for (float& v : values) v = std::ldexp(std::round(v * 16), exponent);
    const Outcome outcome = Measure("dither:bits=6", values);
    // Denormal floats add a rounding of their own.
    if (exponent >= -126) {
      EXPECT_NEAR(outcome.nmse / outcome.told, 1, 0.1) << exponent;
    }
    EXPECT_LT(outcome.nmse, 0.001) << exponent;
  }
  std::vector<float> huge(1000, std::numeric_limits<float>::max());
  std::vector<uint8_t> frame(Make("dither")->MaxFrameBytes(huge.size()));
  Workspace work;
  EXPECT_EQ(Make("dither")->Encode(huge, {1}, work, frame).status().code(),
            StatusCode::kOutOfRange);
}

TEST(Dither, SpecsAreCheckedAndKept) {
  EXPECT_EQ(Make("dither")->spec(), "dither:bits=2");
  EXPECT_EQ(Make("dither:bits=0.75,model=gauss")->spec(), "dither:bits=0.75,model=gauss");
  EXPECT_EQ(Make("dither:nmse=0.050")->spec(), "dither:nmse=0.05");
  const auto error = [](const char* spec) { return MakeCodec(spec).status().message(); };
  EXPECT_THAT(error("dither:bits=2,nmse=0.1"), HasSubstr("exclude each other"));
  EXPECT_THAT(error("dither:bits=0.25"), HasSubstr("0.5 to 8"));
  EXPECT_THAT(error("dither:bits=nan"), HasSubstr("0.5 to 8"));
  EXPECT_THAT(error("dither:nmse=0"), HasSubstr("1e-06 to 10"));
  EXPECT_THAT(error("dither:model=cauchy"), HasSubstr("auto, laplace, gauss"));
}

}  // namespace
}  // namespace elastiquant
