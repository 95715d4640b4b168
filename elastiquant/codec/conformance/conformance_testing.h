// What the tests share that run over every codec.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/kernels/targets.h"

namespace elastiquant {

inline constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

// Around the widths of vectors, blocks and buckets.
inline constexpr size_t kLengths[] = {0,   1,   2,   3,    7,    8,    15,   16,  17,
                                      31,  32,  33,  63,   64,   127,  129,  255, 511,
                                      512, 513, 999, 1025, 8191, 8193, 70001};

// Finite vectors that quantisers get wrong. All within fp16, so that no codec saturates.
std::vector<std::vector<float>> DifficultVectors();

bool SameBits(std::span<const float> a, std::span<const float> b);

// Uses one SIMD target for as long as it lives.
struct ScopedTarget {
  explicit ScopedTarget(const std::string& name) { EXPECT_TRUE(UseSimdTarget(name).ok()); }
  ~ScopedTarget() { EXPECT_TRUE(UseSimdTarget("auto").ok()); }
};

// Makes the codec that the parameter, a spec, names.
class Conformance : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto made = MakeCodec(GetParam());
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    codec_ = *made;
  }

  // A buffer of exactly the promised size, so that a sanitizer sees a write past it.
  std::vector<uint8_t> Encoded(std::span<const float> values, StreamKey key = {42}) {
    std::vector<uint8_t> frame(codec_->MaxFrameBytes(values.size()));
    const auto size = codec_->Encode(values, key, work_, frame);
    EXPECT_TRUE(size.ok()) << size.status().ToString();
    if (size.ok()) {
      EXPECT_LE(*size, frame.size());
      frame.resize(*size);
    }
    return frame;
  }
  std::vector<float> Decoded(std::span<const uint8_t> frame, size_t n) {
    std::vector<float> values(n, -77.0f);
    const Status status = DecodeFrame(frame, work_, values);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return values;
  }
  Status TryDecode(std::span<const uint8_t> frame, size_t n) {
    std::vector<float> values(n);
    return DecodeFrame(frame, work_, values);
  }
  Status TryEncode(std::span<const float> values) {
    std::vector<uint8_t> frame(codec_->MaxFrameBytes(values.size()));
    return codec_->Encode(values, {1}, work_, frame).status();
  }

  std::shared_ptr<const Codec> codec_;
  Workspace work_{1};
};

// The specs that the registered families and modifiers are to be tested with.
std::vector<std::string> Variants();
// Those of codecs of one class.
std::vector<std::string> VariantsOf(CodecClass kind);

// A spec, in the characters that names of tests may have.
std::string TestName(const ::testing::TestParamInfo<std::string>& info);

}  // namespace elastiquant
