#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/remembering.h"

namespace elastiquant {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

// One worker's stream of messages, and what it remembers.
struct DgcStream {
  DgcStream(const std::string& spec, size_t n) : codec(*MakeCodec(spec)) {
    before.assign(codec->StateFields().size(), std::vector<float>(n));
    after = before;
  }
  std::vector<float> Send(const std::vector<float>& values) {
    const std::vector<std::span<const float>> in(before.begin(), before.end());
    const std::vector<std::span<float>> out(after.begin(), after.end());
    std::vector<uint8_t> frame(codec->MaxFrameBytes(values.size()));
    const auto size = codec->EncodeNext(values, {step++}, work, frame, in, out);
    EXPECT_TRUE(size.ok()) << size.status().ToString();
    bytes = *size;
    std::vector<float> decoded(values.size());
    EXPECT_TRUE(DecodeFrame(std::span(frame).first(*size), work, decoded).ok());
    std::swap(before, after);
    return decoded;
  }

  std::shared_ptr<const Codec> codec;
  std::vector<std::vector<float>> before, after;
  uint64_t step = 0;
  size_t bytes = 0;
  Workspace work;
};

auto Near(float v) { return FloatNear(v, 1e-6f); }

TEST(DgcCodec, WorkedExample) {
  for (const std::string spec : {"topk:k=1,bits=32|dgc:momentum=0.9",
                                 "dgc:ratio=0.25,bits=32,method=exact,momentum=0.9"}) {
    DgcStream stream(spec, 4);
    EXPECT_THAT(stream.Send({1, -0.5f, 0.2f, 0.1f}), ElementsAre(1, 0, 0, 0));
    EXPECT_THAT(stream.Send({0.1f, -0.5f, 0.3f, 0.1f}), ElementsAre(0, Near(-1.45f), 0, 0));
    EXPECT_THAT(stream.before[1], ElementsAre(Near(0.1f), 0, Near(0.68f), Near(0.29f)));
    EXPECT_THAT(stream.before[0], ElementsAre(Near(0.1f), 0, Near(0.48f), Near(0.19f)));
  }
}

TEST(DgcCodec, IsTopKUnderItsMemory) {
  const auto codec = *MakeCodec("dgc:ratio=0.02");
  EXPECT_EQ(codec->spec(),
            "dgc:ratio=0.02,bits=16,method=sampled,momentum=0.9,nesterov=no,clip=0,"
            "warmup=0.25/0.0625/0.015625/0.004");
  EXPECT_TRUE(MomentumOf(*codec).has_value());
  EXPECT_EQ(codec->exchange(), Exchange::kSparse);
  EXPECT_THAT(codec->StateFields(), ElementsAre("velocity", "residual"));
  DgcStream dgc("dgc:ratio=0.02,clip=3,nesterov=yes", 500);
  DgcStream parts("topk:ratio=0.02,method=sampled|dgc:clip=3,nesterov=yes", 500);
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(500);
  for (int t = 0; t < 5; ++t) {
    for (float& v : values) v = normal(generator);
    EXPECT_EQ(dgc.Send(values), parts.Send(values));
  }
}

TEST(DgcCodec, SparsityOfThePapersWarmUp) {
  const auto codec = *MakeCodec("dgc");
  const size_t n = 1 << 20;
  double expected[] = {0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001};
  for (int epoch = 0; epoch < 6; ++epoch) {
    const auto of_epoch = CodecForEpoch(codec, epoch);
    // 0.8 of the ratio is kept at the least.
    const double kept = (1 - *of_epoch->NmseBound(n)) / 0.8;
    EXPECT_NEAR(kept / expected[epoch], 1, 1e-2) << epoch;
    EXPECT_EQ(of_epoch->StateFields(), codec->StateFields());
    EXPECT_EQ(of_epoch == codec, epoch >= 4) << epoch;
    EXPECT_EQ((*MakeCodec(of_epoch->spec()))->spec(), of_epoch->spec());
  }
}

TEST(DgcCodec, WarmUpNeverKeepsFewerThanLater) {
  const auto codec = *MakeCodec("dgc:ratio=0.05,warmup=0.5/0.01");
  EXPECT_THAT(CodecForEpoch(codec, 0)->spec(), HasSubstr("ratio=0.5,"));
  EXPECT_THAT(CodecForEpoch(codec, 1)->spec(), HasSubstr("ratio=0.05,"));
  EXPECT_EQ(CodecForEpoch(codec, 2), codec);
  EXPECT_EQ(CodecForEpoch(*MakeCodec("dgc:warmup=no"), 0)->spec(),
            (*MakeCodec("dgc:warmup=no"))->spec());
  const auto other = *MakeCodec("topk");
  EXPECT_EQ(CodecForEpoch(other, 0), other);
}

// The memory is the same for all epochs: a stream goes on when the codec changes.
TEST(DgcCodec, AStreamOutlivesItsWarmUp) {
  DgcStream stream("dgc:ratio=0.01,warmup=0.5,momentum=0", 1000);
  const auto codec = stream.codec;
  std::vector<double> inputs(1000), sent(1000);
  size_t first = 0;
  for (int t = 0; t < 60; ++t) {
    stream.codec = CodecForEpoch(codec, t / 30);
    std::vector<float> values(1000);
    for (size_t i = 0; i < 1000; ++i) {
      values[i] =
          static_cast<float>(RandomBits({1, 2}, static_cast<uint32_t>(60 * i + t))) * 0x1p-32f;
    }
    const std::vector<float> q = stream.Send(values);
    if (t == 0) first = stream.bytes;
    for (size_t i = 0; i < 1000; ++i) {
      inputs[i] += values[i];
      sent[i] += q[i];
    }
  }
  EXPECT_GT(first, 10 * stream.bytes);
  for (size_t i = 0; i < 1000; ++i) EXPECT_NEAR(inputs[i], sent[i] + stream.before[1][i], 1e-3);
}

TEST(DgcCodec, SaysWhichValuesAreValid) {
  for (const char* bad : {"", "0", "2", "0.5/", "/0.5", "0.5/x", "yes"}) {
    const auto made = MakeCodec(std::string("dgc:warmup=") + bad);
    EXPECT_FALSE(made.ok()) << bad;
  }
  EXPECT_THAT(MakeCodec("dgc:warmup=2").status().message(), HasSubstr("first epochs"));
  EXPECT_THAT(MakeCodec("dgc:ratio=0").status().message(), HasSubstr("codec 'dgc'"));
  EXPECT_THAT(MakeCodec("dgc:momentum=1").status().message(), HasSubstr("below 1"));
  EXPECT_THAT(MakeCodec("dgc|ef").status().message(), HasSubstr("memory"));
}

}  // namespace
}  // namespace elastiquant
