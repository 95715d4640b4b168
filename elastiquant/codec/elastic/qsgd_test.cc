#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/codec/frame.h"

namespace elastiquant {
namespace {

void ExpectSameFrames(const std::string& preset, const std::string& elastic) {
  const std::vector<float> v = Gaussian(1300);
  EXPECT_EQ(Encode(*Make(preset), v, {7}), Encode(*Make(elastic), v, {7})) << preset;
}

TEST(Qsgd, PresetsAreElasticsWithFixedKeys) {
  ExpectSameFrames("qsgd", "elastic:levels=uniform,norm=l2");
  ExpectSameFrames("qsgdv", "elastic:levels=uniform,norm=linf");
  ExpectSameFrames("nuqsgd", "elastic:p=0.5,norm=l2");
  ExpectSameFrames("elastiquant", "elastic:p=0.5,norm=l2,bucket=8192");
  ExpectSameFrames("elastiquant:bits=8|elias",
                   "elastic:bits=8,p=0.5,norm=l2,bucket=8192|elias");
  ExpectSameFrames("qsgd:bits=3,bucket=100|elias",
                   "elastic:levels=uniform,norm=l2,bits=3,bucket=100|elias");
  ExpectSameFrames("nuqsgd:bits=5,bucket=0|rans", "elastic:p=0.5,norm=l2,bits=5,bucket=0|rans");
}

TEST(Qsgd, SpecsKeepTheFieldsName) {
  EXPECT_EQ(Make("qsgd")->spec(), "qsgd:bits=4,bucket=512");
  EXPECT_EQ(Make("qsgdv|rans")->spec(), "qsgdv:bits=4,bucket=512|rans");
  EXPECT_EQ(Make("nuqsgd:bucket=8192|elias")->spec(), "nuqsgd:bits=4,bucket=8192|elias");
  EXPECT_EQ(Make("elastiquant|elias")->spec(), "elastiquant:bits=4,bucket=8192|elias");
}

// As published: each worker's gradient is quantised once.
TEST(ElastiQuant, AsksForAnAllGather) {
  EXPECT_EQ(Make("elastiquant")->exchange(), Exchange::kAllGather);
  EXPECT_EQ(Make("nuqsgd")->exchange(), Exchange::kTwoPhase);
}

// Tensors of 5000, 1, 300, 16, 8192, 8193 and 40000 values, each a thousandth of the one
// before.
const std::vector<TensorShape> kTensors{{50, 100}, {1, 1},    {3, 100},  {1, 16},
                                        {1, 0},    {64, 128}, {1, 8193}, {200, 200}};
std::vector<float> ShrinkingTensors() {
  std::vector<float> v = Gaussian(61702);
  size_t at = 0;
  float scale = 1e9f;
  for (const TensorShape& shape : kTensors) {
    for (size_t end = at + shape.rows * shape.cols; at < end; ++at) v[at] *= scale;
    if (shape.cols > 0) scale *= 1e-3f;
  }
  return v;
}

// A tensor's values are its own buckets' norms times levels, whatever stands beside it.
TEST(ElastiQuant, TensorsShareNoBucket) {
  const std::vector<float> v = ShrinkingTensors();
  for (const std::string coding : {"", "|elias", "|rans"}) {
    for (const size_t bucket : {size_t{100}, size_t{8192}, size_t{0}}) {
      SCOPED_TRACE(coding + " " + std::to_string(bucket));
      const auto codec =
          CodecForShapes(Make("elastiquant:bucket=" + std::to_string(bucket) + coding),
                         kTensors)
              .value();
      const auto frame = Encode(*codec, v, {5});
      EXPECT_EQ(Encode(*codec, v, {5}, 3), frame);
      const std::vector<float> q = Decode(frame, v.size());
      EXPECT_EQ(Decode(frame, v.size(), 3), q);
      size_t begin = 0;
      for (const TensorShape& shape : kTensors) {
        const size_t size = shape.rows * shape.cols, step = bucket == 0 ? size : bucket;
        for (size_t at = begin; at < begin + size; at += step) {
          const size_t end = std::min(at + step, begin + size);
          double squares = 0;
          for (size_t i = at; i < end; ++i) squares += static_cast<double>(v[i]) * v[i];
          const double norm = std::sqrt(squares);
          for (size_t i = at; i < end; ++i) {
            const double level = std::fabs(q[i]) / norm;
            const double power = std::log2(level);
            ASSERT_TRUE(q[i] == 0 || (std::fabs(power - std::round(power)) < 1e-5 &&
                                      power > -6.5 && power < .5))
                << i << ": " << level;
          }
        }
        begin += size;
      }
    }
  }
}

TEST(ElastiQuant, MessagesMustBeOfItsTensors) {
  const auto codec = CodecForShapes(Make("elastiquant"), kTensors).value();
  const std::vector<float> v = Gaussian(100);
  Workspace work;
  std::vector<uint8_t> frame(codec->MaxFrameBytes(v.size()));
  const Status status = codec->Encode(v, {1}, work, frame).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("61702"), std::string::npos) << status.message();
}

TEST(ElastiQuant, EveryDamagedByteIsRefusedOrHarmless) {
  const std::vector<TensorShape> shapes{{5, 6}, {1, 7}, {1, 90}};
  for (const char* spec : {"elastiquant:bucket=20", "elastiquant:bucket=0|elias"}) {
    SCOPED_TRACE(spec);
    const auto codec = CodecForShapes(Make(spec), shapes).value();
    const auto step = [](size_t at) {
      // Of the header the flags only: lengths and counts have a test of their own.
      if (at < kFrameHeaderBytes) return at == 6 ? 1 : 0;
      return at < 70 ? 1 : 23;
    };
    const auto frame = Encode(*codec, Gaussian(127), {9});
    EXPECT_GT(ExpectDamageIsRefusedOrHarmless(frame, 127, step), 3000u);
  }
}

TEST(Qsgd, ErrorsNameThePreset) {
  const auto message = [](const char* spec) { return MakeCodec(spec).status().message(); };
  EXPECT_EQ(message("qsgd:bits=9"), "codec 'qsgd': bits=9 is not valid; use 2 to 8");
  EXPECT_EQ(message("nuqsgd|rans|elias"),
            "codec 'nuqsgd': it takes one modifier, |rans or |elias, not 2");
  EXPECT_EQ(message("qsgdv:norm=l1"), "codec 'qsgdv' has no key 'norm'; valid: bits, bucket");
}

// d / (4 s^2) of uniform levels, or the bound for any levels where that is less; Theorem 4 of
// NUQSGD at d = 512 < 2^(2s+2).
TEST(Qsgd, BoundsAreThePublishedOnes) {
  EXPECT_NEAR(*Make("qsgd:bits=8")->NmseBound(5000), 512.0 / (4 * 127 * 127), 1e-6);
  EXPECT_NEAR(*Make("qsgd")->NmseBound(5000), std::sqrt(512) / 7 - 1 + .125, 1e-6);
  EXPECT_NEAR(*Make("nuqsgd")->NmseBound(5000), .125 + 512 * 0x1p-14, 1e-9);
}

TEST(Qsgd, GaussianErrorIsAsPublished) {
  const std::vector<float> v = Gaussian(size_t{1} << 18);
  const struct {
    const char* spec;
    double nmse;
  } cases[] = {
      {"qsgd:bits=3", 5.0},
      {"qsgd:bits=3,bucket=8192", 23},
      {"qsgd", 1.58},
      {"qsgd:bucket=8192", 9.3},
      {"qsgdv:bits=3", .196},
      {"qsgdv", .0362},
      {"nuqsgd:bits=3", 3.5},
      {"nuqsgd:bits=3,bucket=8192", 17},
      {"nuqsgd", .087},
      {"nuqsgd:bucket=8192", .335},
      {"qsgdv:bits=3,bucket=8192", .297},
  };
  for (const auto& c : cases) {
    const auto q = Decode(Encode(*Make(c.spec), v, DeriveKey(1, 2, 3, 4)), v.size());
    EXPECT_NEAR(Nmse(v, q), c.nmse, .03 * c.nmse) << c.spec;
  }
}

}  // namespace
}  // namespace elastiquant
