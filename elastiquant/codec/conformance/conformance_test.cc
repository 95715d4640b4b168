// What every codec owes its callers, whatever its scheme: each test runs over each variant that
// the registered families name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "elastiquant/codec/conformance/allocation_counter_testing.h"
#include "elastiquant/codec/conformance/conformance_testing.h"
#include "elastiquant/codec/registry.h"
#include "elastiquant/codec/spec.h"
#include "elastiquant/kernels/targets.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Of the first family with the same wire format, or of a modifier with one of its own.
std::string NameOnTheWire(const Spec& spec) {
  for (const CodecModifier* modifier : CodecModifiers()) {
    if (modifier->decode != nullptr && !spec.modifiers.empty() &&
        modifier->name == spec.modifiers.back().name) {
      return modifier->name;
    }
  }
  // terngrad:bucket=tensor makes frames of elastic, whose buckets may end with tensors.
  const bool by_tensor = SpecValue(spec.codec, "bucket", "") == "tensor";
  const std::string name = by_tensor ? "elastic" : spec.codec.name;
  const auto families = CodecFamilies();
  const auto own = std::ranges::find_if(
      families, [&](const CodecFamily* family) { return family->info.name == name; });
  const auto first = std::ranges::find_if(
      families, [&](const CodecFamily* family) { return family->id == (*own)->id; });
  return (*first)->info.name;
}

TEST_P(Conformance, FramesStayWithinTheBound) {
  for (size_t n : kLengths) {
    const std::vector<float> values = Gaussian(n, 3);
    Encoded(values);  // checks it
    const size_t bound = codec_->MaxFrameBytes(n);
    std::vector<uint8_t> small(bound - 1);
    const Status status = codec_->Encode(values, {1}, work_, small).status();
    EXPECT_EQ(status.code(), StatusCode::kBufferTooSmall) << n;
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(bound)));
  }
  for (const auto& values : DifficultVectors()) Encoded(values);
}

// The bound of a length that no test can hold in memory, where counts of 32 bits would wrap.
TEST_P(Conformance, TheBoundGrowsUpToTheLongestMessage) {
  const size_t least = codec_->MaxFrameBytes(kMaxFrameElements / 2);
  for (size_t below = 1; below <= size_t{1} << 16; below *= 2) {
    EXPECT_GE(codec_->MaxFrameBytes(kMaxFrameElements + 1 - below), least) << below;
  }
}

TEST_P(Conformance, BytesDependOnlyOnValuesAndKey) {
  for (size_t n : kLengths) {
    const std::vector<float> values = Gaussian(n, 4);
    const std::vector<uint8_t> frame = Encoded(values);
    const std::vector<float> decoded = Decoded(frame, n);
    std::vector<float> sum(n, 0.5f);
    ASSERT_TRUE(DecodeAddFrame(frame, -0.3f, work_, sum).ok());
    for (const std::string& target : SimdTargets()) {
      const ScopedTarget scoped(target);
      for (int threads : {1, 2, 5}) {
        Workspace work(threads);
        std::vector<uint8_t> again(codec_->MaxFrameBytes(n), 0xAA);
        const auto size = codec_->Encode(values, {42}, work, again);
        ASSERT_TRUE(size.ok()) << size.status().ToString();
        again.resize(*size);
        ASSERT_EQ(again, frame) << target << " " << threads << " threads, length " << n;
        std::vector<float> decoded_again(n), sum_again(n, 0.5f);
        ASSERT_TRUE(DecodeFrame(frame, work, decoded_again).ok());
        ASSERT_TRUE(DecodeAddFrame(frame, -0.3f, work, sum_again).ok());
        ASSERT_TRUE(SameBits(decoded_again, decoded)) << target << " length " << n;
        ASSERT_TRUE(SameBits(sum_again, sum)) << target << " length " << n;
      }
    }
  }
}

TEST_P(Conformance, DecodeAddIsDecodeThenAdd) {
  for (const auto& values : DifficultVectors()) {
    const std::vector<uint8_t> frame = Encoded(values);
    const std::vector<float> q = Decoded(frame, values.size());
    for (float weight : {1.0f, 0.0f, -0.25f, 1.0f / 3}) {
      std::vector<float> sum = Gaussian(values.size(), 5), expected = sum;
      for (size_t i = 0; i < q.size(); ++i) {
        const float product = weight * q[i];
        expected[i] = expected[i] + product;
      }
      ASSERT_TRUE(DecodeAddFrame(frame, weight, work_, sum).ok());
      EXPECT_TRUE(SameBits(sum, expected)) << "weight " << weight;
    }
  }
}

TEST_P(Conformance, FramesSayWhatTheyAre) {
  const std::vector<uint8_t> frame = Encoded(Gaussian(100), {0x123456789ABCDEF0});
  const auto summary = InspectFrame(frame);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->codec, NameOnTheWire(*ParseSpec(GetParam())));
  EXPECT_EQ(summary->elements, 100u);
  EXPECT_EQ(summary->bytes, frame.size());
  EXPECT_EQ(summary->key.value, 0x123456789ABCDEF0u);
}

TEST_P(Conformance, TheCanonicalSpecMakesTheSameCodec) {
  const auto twin = MakeCodec(codec_->spec());
  ASSERT_TRUE(twin.ok()) << twin.status().ToString();
  EXPECT_EQ((*twin)->spec(), codec_->spec());
  EXPECT_EQ((*twin)->codec_class(), codec_->codec_class());
  const std::vector<float> values = Gaussian(1500, 6);
  EXPECT_EQ((*twin)->MaxFrameBytes(values.size()), codec_->MaxFrameBytes(values.size()));
  const std::vector<uint8_t> frame = Encoded(values);
  codec_ = *twin;
  EXPECT_EQ(Encoded(values), frame);
}

TEST_P(Conformance, NothingIsAllocatedInSteadyState) {
  const std::vector<float> values = Gaussian(150000);
  std::vector<uint8_t> frame(codec_->MaxFrameBytes(values.size()));
  std::vector<float> decoded(values.size());
  for (int threads : {1, 3}) {
    Workspace work(threads);
    // Threads take blocks in any order: one may be given its first block late. It shall have
    // been given room before.
    for (int t = 0; threads > 1 && t < threads; ++t) work.Scratch(t, size_t{1} << 22);
    size_t before = 0;
    for (uint64_t step = 0; step < 6; ++step) {
      if (step == 3) before = AllocatedBytes();
      const auto size = codec_->Encode(values, DeriveKey(1, step, 0, 0), work, frame);
      ASSERT_TRUE(size.ok());
      const std::span<const uint8_t> sent = std::span(frame).first(*size);
      ASSERT_TRUE(DecodeFrame(sent, work, decoded).ok());
      ASSERT_TRUE(DecodeAddFrame(sent, 0.5f, work, decoded).ok());
    }
    EXPECT_EQ(AllocatedBytes() - before, 0u) << threads << " threads";
  }
}

TEST_P(Conformance, NonFiniteValuesAreNeverEncoded) {
  for (size_t n : {1u, 5u, 37u, 600u, 70001u}) {
    for (float poison : {kInfinity, -kInfinity, std::nanf("")}) {
      for (size_t at : {size_t{0}, n / 2, n - 1}) {
        std::vector<float> values = Gaussian(n);
        values[at] = poison;
        values[n - 1] = poison;  // the first one is to be named
        const Status status = TryEncode(values);
        EXPECT_EQ(status.code(), StatusCode::kNonFinite) << n << " " << at;
        EXPECT_THAT(status.message(), HasSubstr("coordinate " + std::to_string(at)));
      }
    }
  }
}

TEST_P(Conformance, HugeValuesStayFiniteOrAreRefused) {
  for (size_t n : {1u, 2u, 33u, 600u}) {
    std::vector<float> values(n, kMax);
    for (size_t i = 1; i < n; i += 2) values[i] = -kMax;
    std::vector<uint8_t> frame(codec_->MaxFrameBytes(n));
    const auto size = codec_->Encode(values, {1}, work_, frame);
    if (!size.ok()) {
      EXPECT_EQ(size.status().code(), StatusCode::kOutOfRange) << size.status().ToString();
      continue;
    }
    frame.resize(*size);
    for (float q : Decoded(frame, n)) EXPECT_TRUE(std::isfinite(q));
  }
}

TEST_P(Conformance, ZerosStayZero) {
  const std::vector<float> zeros(1000, 0.0f);
  for (float q : Decoded(Encoded(zeros), zeros.size())) EXPECT_EQ(q, 0.0f);
}

INSTANTIATE_TEST_SUITE_P(AllCodecs, Conformance, ::testing::ValuesIn(Variants()), TestName);

TEST(ConformanceList, EveryRegisteredCodecHasVariantsOfItsOwn) {
  for (const CodecFamily* family : CodecFamilies()) {
    EXPECT_FALSE(family->variants.empty()) << family->info.name;
    for (const std::string& spec : family->variants) {
      EXPECT_EQ(ParseSpec(spec)->codec.name, family->info.name);
    }
  }
}

}  // namespace
}  // namespace elastiquant
