#include "elastiquant/stream/codec_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/codec/codec_testing.h"

namespace elastiquant {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr const char* kWithMemory[] = {"topk:ratio=0.05|ef", "dgc:ratio=0.1,momentum=0.5",
                                       "qsgdv:bits=3|ef", "powersgd:rank=2", "powersgd|ef"};

std::vector<uint8_t> Next(CodecStream& stream, const std::vector<float>& values) {
  Workspace work;
  std::vector<uint8_t> frame(stream.codec().MaxFrameBytes(values.size()));
  const auto size = stream.Encode(values, DeriveKey(1, stream.messages(), 0, 0), work, frame);
  EXPECT_TRUE(size.ok()) << size.status().ToString();
  stream.Commit();
  frame.resize(size.ok() ? *size : 0);
  return frame;
}
std::vector<uint8_t> Saved(const CodecStream& stream) {
  std::vector<uint8_t> bytes(stream.StateBytes());
  EXPECT_EQ(stream.Save(bytes).value(), bytes.size());
  return bytes;
}

TEST(CodecStream, WhatWasSentAndWhatIsRememberedAreAllThereWas) {
  constexpr size_t kSize = 900;
  CodecStream stream(Make("topk:ratio=0.05|ef"), kSize);
  std::vector<double> given(kSize), sent(kSize);
  for (unsigned t = 0; t < 10; ++t) {
    const std::vector<float> values = Gaussian(kSize, t);
    const std::vector<float> q = Decode(Next(stream, values), kSize);
    for (size_t i = 0; i < kSize; ++i) {
      given[i] += values[i];
      sent[i] += q[i];
    }
  }
  EXPECT_EQ(stream.messages(), 10u);
  ASSERT_EQ(stream.names(), std::vector<std::string>{"residual"});
  double dropped = 0;
  for (size_t i = 0; i < kSize; ++i) {
    EXPECT_NEAR(sent[i] + stream.field(0)[i], given[i], 1e-4);
    dropped += std::abs(given[i] - sent[i]);
  }
  EXPECT_GT(dropped, 1) << "something must have been remembered for this to say anything";
}

TEST(CodecStream, GoesOnWhereItWasSaved) {
  for (const char* spec : kWithMemory) {
    CodecStream whole(Make(spec), 700), first(Make(spec), 700), second(Make(spec), 700);
    for (unsigned t = 0; t < 3; ++t)
      EXPECT_EQ(Next(whole, Gaussian(700, t)), Next(first, Gaussian(700, t)));
    ASSERT_TRUE(second.Load(Saved(first)).ok());
    EXPECT_EQ(second.messages(), 3u);
    for (unsigned t = 3; t < 6; ++t) {
      EXPECT_EQ(Next(second, Gaussian(700, t)), Next(whole, Gaussian(700, t))) << spec;
    }
    EXPECT_EQ(Saved(second), Saved(whole));
    CodecStream fresh(Make(spec), 700);
    EXPECT_NE(Saved(fresh), Saved(whole)) << spec;
  }
}

TEST(CodecStream, WithoutMemoryIsTheCodec) {
  const auto codec = Make("dither:bits=2");
  CodecStream stream(codec, 500);
  EXPECT_EQ(Next(stream, Gaussian(500)), Encode(*codec, Gaussian(500), DeriveKey(1, 0, 0, 0)));
  EXPECT_TRUE(stream.names().empty());
  EXPECT_TRUE(stream.Load(Saved(stream)).ok());
}

TEST(CodecStream, AMessageThatFailsIsForgotten) {
  CodecStream stream(Make("topk:ratio=0.05|ef"), 100);
  Next(stream, Gaussian(100));
  const std::vector<uint8_t> before = Saved(stream);
  Workspace work;
  std::vector<uint8_t> frame(stream.codec().MaxFrameBytes(100));
  std::vector<float> bad = Gaussian(100, 2);
  bad[7] = std::nanf("");
  EXPECT_EQ(stream.Encode(bad, {2}, work, frame).status().code(), StatusCode::kNonFinite);
  const Status other = stream.Encode(Gaussian(101), {2}, work, frame).status();
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("100 values, not 101"));
  EXPECT_EQ(Saved(stream), before);
}

TEST(CodecStream, WhatIsNotCommittedIsForgotten) {
  for (const char* spec : kWithMemory) {
    CodecStream stream(Make(spec), 500), other(Make(spec), 500);
    Next(stream, Gaussian(500, 1));
    Next(other, Gaussian(500, 1));
    Workspace work;
    std::vector<uint8_t> frame(stream.codec().MaxFrameBytes(500));
    ASSERT_TRUE(stream.Encode(Gaussian(500, 9), {7}, work, frame).ok());
    EXPECT_EQ(stream.messages(), 1u);
    EXPECT_EQ(Saved(stream), Saved(other)) << spec;
    EXPECT_EQ(Next(stream, Gaussian(500, 2)), Next(other, Gaussian(500, 2))) << spec;
    EXPECT_EQ(Saved(stream), Saved(other)) << spec;
  }
}

TEST(CodecStream, PartsRememberWhatTheWholeWouldOfThem) {
  const auto codec = Make("topk:ratio=0.05|ef");
  CodecStream whole(codec, 500), front(codec, 200), back(codec, 300);
  Workspace work;
  std::vector<uint8_t> frame(codec->MaxFrameBytes(500));
  for (unsigned t = 0; t < 3; ++t) {
    const std::vector<float> values = Gaussian(500, t);
    const std::span<const float> first = std::span(values).first(200);
    const std::span<const float> second = std::span(values).subspan(200);
    ASSERT_TRUE(whole.EncodePart(*codec, 0, first, {2 * t}, work, frame).ok());
    ASSERT_TRUE(whole.EncodePart(*codec, 200, second, {2 * t + 1}, work, frame).ok());
    whole.Commit();
    ASSERT_TRUE(front.Encode(first, {2 * t}, work, frame).ok());
    ASSERT_TRUE(back.Encode(second, {2 * t + 1}, work, frame).ok());
    front.Commit();
    back.Commit();
  }
  std::vector<float> parts(front.field(0).begin(), front.field(0).end());
  parts.insert(parts.end(), back.field(0).begin(), back.field(0).end());
  EXPECT_THAT(parts, ElementsAreArray(whole.field(0)));
}

TEST(CodecStream, AnotherCodecMustRememberTheSame) {
  CodecStream stream(Make("topk:ratio=0.05|ef"), 400);
  Next(stream, Gaussian(400));
  const std::vector<float> residual(stream.field(0).begin(), stream.field(0).end());
  const Status refused = stream.SetCodec(Make("dgc:ratio=0.1,momentum=0.5"));
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("remembers (velocity, residual) where "
                                           "'topk:ratio=0.05"));
  EXPECT_THAT(stream.codec().spec(), HasSubstr("topk:ratio=0.05"));
  ASSERT_TRUE(stream.SetCodec(Make("topk:ratio=0.5|ef")).ok());
  EXPECT_THAT(residual, ElementsAreArray(stream.field(0)));
  EXPECT_GT(Next(stream, Gaussian(400, 1)).size(), 400u) << "half of the values, 4 bytes each";
}

TEST(CodecStream, NoCodecRemembersMoreThanThereIsRoomFor) {
  for (const CodecInfo& codec : ListCodecs()) {
    EXPECT_LE(Make(codec.spec)->StateFields().size(), CodecStream::kMaxFields) << codec.spec;
  }
}

TEST(CodecStream, StatesOfOthersAndDamagedOnesAreRefused) {
  CodecStream stream(Make("topk:ratio=0.05|ef"), 100);
  Next(stream, Gaussian(100));
  const std::vector<uint8_t> before = Saved(stream);
  const auto refused = [&](const std::vector<uint8_t>& state, StatusCode code,
                           const char* words) {
    const Status status = stream.Load(state);
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(words));
    EXPECT_EQ(Saved(stream), before) << "it must be as it was";
  };
  CodecStream other(Make("topk:ratio=0.5|ef"), 100), longer(Make("topk:ratio=0.05|ef"), 101);
  refused(Saved(other), StatusCode::kInvalidArgument, "codec 'topk:ratio=0.5");
  refused(Saved(longer), StatusCode::kInvalidArgument, "101 values");
  for (size_t size = 0; size < before.size(); size += 13) {
    refused({before.begin(), before.begin() + static_cast<ptrdiff_t>(size)},
            StatusCode::kCorruptData, "stream state check failed");
  }
  for (size_t at = 0; at < before.size(); at += 7) {
    std::vector<uint8_t> damaged = before;
    damaged[at] ^= 64;
    refused(damaged, StatusCode::kCorruptData, "stream state check failed");
  }
  // Behind a right checksum.
  std::vector<uint8_t> nan = before;
  std::fill(nan.end() - 4, nan.end(), uint8_t{0xFF});
  const uint32_t checksum = Crc32c(std::span<const uint8_t>(nan).subspan(8));
  std::memcpy(nan.data() + 4, &checksum, sizeof(checksum));
  refused(nan, StatusCode::kCorruptData, "NaN");
  std::vector<uint8_t> room(stream.StateBytes() - 1);
  EXPECT_EQ(stream.Save(room).status().code(), StatusCode::kBufferTooSmall);
}

TEST(CodecStream, CodecsThatRememberAreToldApart) {
  for (const char* spec : kWithMemory) {
    const Status status = CheckRemembersNothing(*Make(spec), "make a stream");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << spec;
    EXPECT_THAT(status.message(), HasSubstr("make a stream"));
  }
  EXPECT_TRUE(CheckRemembersNothing(*Make("topk|rotate"), "").ok());
}

}  // namespace
}  // namespace elastiquant
