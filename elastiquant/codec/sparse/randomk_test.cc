#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/frame.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

std::vector<float> Send(const Codec& codec, const std::vector<float>& values, uint64_t key,
                        size_t* bytes = nullptr) {
  Workspace work;
  std::vector<uint8_t> frame(codec.MaxFrameBytes(values.size()));
  const auto size = codec.Encode(values, {key}, work, frame);
  EXPECT_TRUE(size.ok()) << size.status().ToString();
  if (bytes != nullptr) *bytes = *size;
  std::vector<float> decoded(values.size());
  EXPECT_TRUE(DecodeFrame(std::span(frame).first(*size), work, decoded).ok());
  return decoded;
}

TEST(RandomK, KeepsExactlyKAndSendsNoPositions) {
  const std::vector<float> values(1000, 2.0f);
  size_t bytes = 0;
  const std::vector<float> q = Send(**MakeCodec("randomk:k=30,bits=16"), values, 5, &bytes);
  EXPECT_EQ(bytes, kFrameHeaderBytes + 12 + 30 * 2);
  size_t kept = 0;
  for (float v : q) {
    if (v == 0) continue;
    EXPECT_NEAR(v, 2 * 1000.0f / 30, 0.0625f);  // a last place of binary16
    ++kept;
  }
  EXPECT_EQ(kept, 30u);
}

TEST(RandomK, EveryCoordinateIsAsLikely) {
  const auto codec = *MakeCodec("randomk:ratio=0.25,bits=32,scale=no");
  const std::vector<float> values(40, 1.0f);
  std::vector<double> kept(40);
  constexpr int kDraws = 4000;
  for (uint64_t t = 0; t < kDraws; ++t) {
    const std::vector<float> q = Send(*codec, values, DeriveKey(1, t, 0, 0).value);
    for (size_t i = 0; i < 40; ++i) kept[i] += q[i];
  }
  const double deviation = std::sqrt(kDraws * 0.25 * 0.75);
  for (double count : kept) EXPECT_NEAR(count, kDraws * 0.25, 5 * deviation);
}

// (n/k - 1) |v|^2 scaled, (1 - k/n) |v|^2 not: exact with values of 32 bits.
TEST(RandomK, TheVarianceIsThatOfTheFormula) {
  std::vector<float> values(50);
  double norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i) - 20;
    norm += static_cast<double>(values[i]) * values[i];
  }
  for (const bool scale : {true, false}) {
    const auto codec =
        *MakeCodec(std::string("randomk:ratio=0.2,bits=32,scale=") + (scale ? "yes" : "no"));
    double error = 0;
    constexpr int kDraws = 20000;
    for (uint64_t t = 0; t < kDraws; ++t) {
      const std::vector<float> q = Send(*codec, values, DeriveKey(2, t, 0, 0).value);
      for (size_t i = 0; i < q.size(); ++i) error += std::pow(q[i] - values[i], 2);
    }
    const double nmse = error / kDraws / norm;
    EXPECT_NEAR(nmse, scale ? 4 : 0.8, scale ? 0.1 : 0.02);
    EXPECT_NEAR(*codec->NmseBound(50), scale ? 4 : 0.8, 1e-9);
  }
}

TEST(RandomK, ClassAndSpecFollowTheScale) {
  const auto scaled = *MakeCodec("randomk"), plain = *MakeCodec("randomk:scale=no");
  EXPECT_EQ(scaled->spec(), "randomk:ratio=0.01,bits=16,scale=yes");
  EXPECT_EQ(scaled->codec_class(), CodecClass::kUnbiased);
  EXPECT_EQ(plain->codec_class(), CodecClass::kContractive);
  EXPECT_EQ(plain->exchange(), Exchange::kSparse);
  EXPECT_THAT(MakeCodec("randomk:scale=2").status().message(), HasSubstr("yes or no"));
}

TEST(RandomK, ScalingBeyondTheLargestFloatIsRefused) {
  const std::vector<float> values(100, 1e37f);
  Workspace work;
  std::vector<uint8_t> frame(10000);
  const Status status = (*MakeCodec("randomk"))->Encode(values, {1}, work, frame).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfRange);
  EXPECT_THAT(status.message(), HasSubstr("scale=no"));
}

}  // namespace
}  // namespace elastiquant
