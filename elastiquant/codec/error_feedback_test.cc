#include "elastiquant/codec/error_feedback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/codec/remembering.h"

namespace elastiquant {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

// One stream of messages: keeps the state between them, as a reducer would.
class Stream {
 public:
  Stream(const std::string& spec, size_t n) : codec_(*MakeCodec(spec)) {
    before_.assign(codec_->StateFields().size(), std::vector<float>(n));
    after_ = before_;
  }

  // What the receiver gets.
  std::vector<float> Send(const std::vector<float>& values) {
    std::vector<uint8_t> frame(codec_->MaxFrameBytes(values.size()));
    const Result<size_t> size = Encode(values, frame);
    EXPECT_TRUE(size.ok()) << size.status().ToString();
    std::vector<float> decoded(values.size());
    EXPECT_TRUE(DecodeFrame(std::span(frame).first(*size), work_, decoded).ok());
    std::swap(before_, after_);
    return decoded;
  }
  Result<size_t> Encode(const std::vector<float>& values, std::span<uint8_t> frame) {
    const std::vector<std::span<const float>> in(before_.begin(), before_.end());
    const std::vector<std::span<float>> out(after_.begin(), after_.end());
    return codec_->EncodeNext(values, DeriveKey(1, step_++, 0, 0), work_, frame, in, out);
  }
  // What a receiver gets of a message that is not encoded.
  std::vector<float> SendExactly(std::vector<float> values) {
    const std::vector<std::span<float>> memory(before_.begin(), before_.end());
    elastiquant::SendExactly(*codec_, values, memory);
    return values;
  }
  const std::vector<float>& field(size_t i) const { return before_[i]; }

 private:
  std::shared_ptr<const Codec> codec_;
  std::vector<std::vector<float>> before_, after_;
  uint64_t step_ = 0;
  Workspace work_{1};
};

// A level set that keeps large values and drops most small ones.
constexpr const char* kCoarse = "elastic:bits=2,levels=1,bucket=64";

TEST(ErrorFeedback, InputsAreWhatWasSentAndTheResidual) {
  for (const std::string spec : {"bf16|ef", "fp16|ef", "elastic:bits=8|ef"}) {
    const size_t n = 1000;
    Stream stream(spec, n);
    std::vector<double> inputs(n), sent(n);
    for (unsigned t = 0; t < 30; ++t) {
      const std::vector<float> values = Gaussian(n, t);
      const std::vector<float> q = stream.Send(values);
      for (size_t i = 0; i < n; ++i) {
        inputs[i] += values[i];
        sent[i] += q[i];
      }
    }
    bool remembers = false;
    for (size_t i = 0; i < n; ++i) {
      EXPECT_NEAR(inputs[i], sent[i] + stream.field(0)[i], 2e-5) << spec << " " << i;
      remembers |= stream.field(0)[i] != 0;
    }
    EXPECT_TRUE(remembers) << spec;
  }
}

// What was sent and the residual are the inputs, without the part of each residual that was
// forgotten: sum(v) = sum(sent) + e_T + (1 - decay) (e_1 + ... + e_(T-1)).
TEST(ErrorFeedback, WhatDecaysIsAllThatInputsAreShortOf) {
  for (const std::string spec : {"bf16|ef:decay=0.95", "topk:ratio=0.1|ef:decay=0.5",
                                 "chunktopk:chunk=64,k=4|ef:decay=0.95"}) {
    const size_t n = 1000;
    Stream stream(spec, n);
    std::vector<double> rest(n);  // of inputs: neither sent nor forgotten
    const double decay = spec.ends_with("0.5") ? 0.5 : 0.95;
    bool forgets = false;
    for (unsigned t = 0; t < 30; ++t) {
      for (size_t i = 0; i < n; ++i) {
        rest[i] -= (1 - decay) * static_cast<double>(stream.field(0)[i]);
        forgets |= stream.field(0)[i] != 0;
      }
      const std::vector<float> values = Gaussian(n, t);
      const std::vector<float> q = stream.Send(values);
      for (size_t i = 0; i < n; ++i) rest[i] += static_cast<double>(values[i]) - q[i];
    }
    for (size_t i = 0; i < n; ++i) {
      EXPECT_NEAR(rest[i], stream.field(0)[i], 2e-5) << spec << " " << i;
    }
    EXPECT_TRUE(forgets) << spec;
  }
}

TEST(ErrorFeedback, DecayIsInTheSpecUnlessItIsOneAndHoldsForExactMessages) {
  EXPECT_TRUE(MakeCodec("bf16|ef:decay=1").value()->spec().ends_with("|ef"));
  EXPECT_TRUE(MakeCodec("bf16|ef:decay=0.95").value()->spec().ends_with("|ef:decay=0.95"));
  EXPECT_TRUE(
      MakeCodec("efsign|ef:decay=0.5").value()->spec().ends_with("|ef:lr=inside,decay=0.5"));
  for (const char* bad : {"0", "-1", "1.5", "nan", "x"}) {
    EXPECT_THAT(MakeCodec("bf16|ef:decay=" + std::string(bad)).status().message(),
                HasSubstr("above 0, up to 1"));
  }
  EXPECT_THAT(MakeCodec("powersgd|ef:decay=0.9").status().message(), HasSubstr("leave decay"));
  Stream stream("bf16|ef:decay=0.5", 1);
  stream.Send({1 + 0x1p-9f});
  const float kept = stream.field(0)[0];
  ASSERT_NE(kept, 0);
  EXPECT_THAT(stream.SendExactly({3}), ElementsAre(3 + 0.5f * kept));
  EXPECT_THAT(stream.field(0), ElementsAre(0));
}

TEST(ErrorFeedback, SendsInTimeWhatRoundingWouldAlwaysLose) {
  Stream plain("bf16", 1), remembering("bf16|ef", 1);
  double plainly = 0, with_memory = 0;
  constexpr int kSteps = 512;
  for (int t = 0; t < kSteps; ++t) {
    plainly += plain.Send({1.001f})[0];
    with_memory += remembering.Send({1.001f})[0];
  }
  EXPECT_EQ(plainly, kSteps);  // 1.001 is 1 in bfloat16
  EXPECT_NEAR(with_memory, 1.001 * kSteps, 0.01);
}

TEST(ErrorFeedback, AMessageNeverSentChangesNothing) {
  Stream stream("bf16|ef", 3);
  stream.Send({1.001f, 2.003f, -1});
  const std::vector<float> residual = stream.field(0);
  std::vector<uint8_t> frame(1000);
  ASSERT_TRUE(stream.Encode({5, 6, 7}, frame).ok());  // and dropped
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(stream.Encode({0, nan, 7}, frame).status().code(), StatusCode::kNonFinite);
  EXPECT_EQ(stream.field(0), residual);
}

TEST(ErrorFeedback, IsOfNoUseToALosslessCodecAndNotToBeDoubled) {
  EXPECT_THAT(MakeCodec("fp32|ef").status().message(), HasSubstr("leave the modifier out"));
  EXPECT_THAT(MakeCodec("bf16|ef|dgc").status().message(), HasSubstr("one of |ef and |dgc"));
  EXPECT_THAT(MakeCodec("bf16|ef:rate=1").status().message(), HasSubstr("no key 'rate'"));
  EXPECT_THAT(MakeCodec("elastic|ef|rans").status().message(), HasSubstr("before 'ef'"));
  EXPECT_THAT(MakeCodec("bf16|nosuch").status().message(), HasSubstr("ef, dgc"));
  EXPECT_EQ((*MakeCodec("elastic|rans|ef"))->spec(),
            (*MakeCodec("elastic|rans"))->spec() + "|ef");
}

// With fp16, which sends all of these values exactly, everything is masked each time.
TEST(Dgc, MaskingForgetsTheVelocityOfWhatWasSent) {
  Stream stream("fp16|dgc:momentum=0.5", 2);
  EXPECT_THAT(stream.Send({1, 2}), ElementsAre(1, 2));
  EXPECT_THAT(stream.field(0), ElementsAre(0, 0));
  EXPECT_THAT(stream.field(1), ElementsAre(0, 0));
  EXPECT_THAT(stream.Send({3, -1}), ElementsAre(3, -1));
}

// The quantiser sends the bucket's largest value exactly and a 0 as nothing.
TEST(Dgc, WhatIsNotSentGathersMomentum) {
  Stream stream(std::string(kCoarse) + "|dgc:momentum=0.9", 2);
  stream.Send({0, 1});
  EXPECT_THAT(stream.field(0), ElementsAre(0, 0));
  // Below fp16's smallest number nothing is ever sent.
  Stream tiny("fp16|dgc:momentum=0.5", 1);
  for (int t = 0; t < 3; ++t) EXPECT_THAT(tiny.Send({1e-9f}), ElementsAre(0));
  EXPECT_THAT(tiny.field(0), ElementsAre(FloatNear(1.75e-9f, 1e-15f)));
  EXPECT_THAT(tiny.field(1), ElementsAre(FloatNear(4.25e-9f, 1e-15f)));  // 1 + 1.5 + 1.75
}

TEST(Dgc, NesterovAddsTheGradientOnce) {
  Stream stream("fp16|dgc:momentum=0.5,nesterov=yes", 1);
  EXPECT_THAT(stream.Send({2}), ElementsAre(3));  // u = 2; w = .5 * 2 + 2
}

TEST(Dgc, ClipsTheNormOfTheGradient) {
  Stream stream("fp16|dgc:clip=1", 2);
  EXPECT_THAT(stream.Send({3, 4}), ElementsAre(FloatNear(0.6f, 1e-3f), FloatNear(0.8f, 1e-3f)));
  EXPECT_THAT(stream.Send({0, 0}), ElementsAre(FloatNear(0, 1e-3f), FloatNear(0, 1e-3f)));
}

TEST(Dgc, NamesTheInfinityThatItCannotClip) {
  Stream stream("fp16|dgc:clip=1", 2);
  std::vector<uint8_t> frame(100);
  const float infinity = std::numeric_limits<float>::infinity();
  const Status status = stream.Encode({1, -infinity}, frame).status();
  EXPECT_EQ(status.code(), StatusCode::kNonFinite);
  EXPECT_THAT(status.message(), HasSubstr("-inf"));
}

// A velocity may grow to ten times the gradient, and a residual adds what was not sent.
TEST(Dgc, SaysThatItsMemoryOverflowsAndNotAValue) {
  for (const auto& [spec, value] :
       {std::pair("topk:k=1|dgc", 1.2e38f), std::pair("topk:k=1|dgc:nesterov=yes", 1.2e38f),
        std::pair("topk:k=1|ef", 2e38f)}) {
    Stream stream(spec, 3);
    std::vector<uint8_t> frame((*MakeCodec(spec))->MaxFrameBytes(3));
    Status status;
    for (int step = 0; step < 8 && status.ok(); ++step) {
      status = stream.Encode({value, value, 0}, frame).status();
      if (status.ok()) stream.Send({value, value, 0});
    }
    EXPECT_EQ(status.code(), StatusCode::kNonFinite) << spec;
    EXPECT_THAT(status.message(), HasSubstr("begin a new stream"));
    EXPECT_THAT(status.message(), HasSubstr("coordinate 1 "));
  }
}

TEST(Dgc, SaysWhichValuesAreValid) {
  EXPECT_THAT(MakeCodec("bf16|dgc:momentum=1").status().message(), HasSubstr("below 1"));
  EXPECT_THAT(MakeCodec("bf16|dgc:nesterov=1").status().message(), HasSubstr("yes or no"));
  EXPECT_THAT(MakeCodec("bf16|dgc:clip=-1").status().message(), HasSubstr("largest norm"));
  EXPECT_EQ((*MakeCodec("bf16|dgc"))->spec(), "bf16|dgc:momentum=0.9,nesterov=no,clip=0");
  EXPECT_TRUE(MomentumOf(**MakeCodec("bf16|dgc")).has_value());
  EXPECT_EQ((*MakeCodec("bf16|dgc"))->exchange(), Exchange::kAllGather);
}

TEST(SendExactly, EmptiesErrorFeedback) {
  for (const std::string spec : {"topk:k=1|ef", "elastic:bits=2|rotate|ef", "powersgd|ef"}) {
    Stream stream(spec, 64);
    std::vector<float> inputs(64), sent(64);
    const auto add = [](std::vector<float>& to, const std::vector<float>& values) {
      for (size_t i = 0; i < to.size(); ++i) to[i] += values[i];
    };
    for (unsigned t = 0; t < 5; ++t) {
      const std::vector<float> values = Gaussian(64, t);
      add(inputs, values);
      add(sent, t < 4 ? stream.Send(values) : stream.SendExactly(values));
    }
    for (size_t i = 0; i < 64; ++i) EXPECT_NEAR(inputs[i], sent[i], 1e-5) << spec;
    EXPECT_THAT(stream.field(0), ::testing::Each(0.0f)) << spec;
  }
}

TEST(SendExactly, LeavesWhatIsNoLoss) {
  Stream stream("powersgd|ef", 64);
  (void)stream.Send(Gaussian(64, 1));
  const std::vector<float> basis = stream.field(1);
  EXPECT_NE(basis, std::vector<float>(64));
  (void)stream.SendExactly(Gaussian(64, 2));
  EXPECT_EQ(stream.field(1), basis);
  Stream none("powersgd", 64);
  EXPECT_EQ(none.SendExactly(Gaussian(64, 3)), Gaussian(64, 3));
}

TEST(SendExactly, IsOrdinaryMomentumUnderDgc) {
  for (const std::string spec : {"topk:k=1|dgc:momentum=0.5", "dgc:ratio=0.01,momentum=0.5"}) {
    Stream stream(spec, 4);
    EXPECT_THAT(stream.SendExactly({1, -2, 4, 0}), ElementsAre(1, -2, 4, 0)) << spec;
    EXPECT_THAT(stream.SendExactly({1, 1, 0, 0}), ElementsAre(1.5, 0, 2, 0));
    EXPECT_THAT(stream.Send({0, 0, 0, 0}), ElementsAre(0, 0, 1, 0)) << "k = 1";
    EXPECT_THAT(stream.SendExactly({0, 0, 0, 0}), ElementsAre(.75 + .375, 0, 0, 0))
        << "what waited, and the velocity";
    EXPECT_THAT(stream.field(0), ElementsAre(.375, 0, 0, 0));
    EXPECT_THAT(stream.field(1), ElementsAre(0, 0, 0, 0));
  }
  Stream nesterov("topk:k=1|dgc:momentum=0.5,nesterov=yes,clip=5", 2);
  EXPECT_THAT(nesterov.SendExactly({6, 8}), ElementsAre(4.5, 6)) << "3, 4 after the clip";
  EXPECT_THAT(nesterov.SendExactly({0, 0}), ElementsAre(.75, 1));
}

TEST(ErrorFeedback, NamesWhereTheLearningRateIs) {
  const std::pair<std::string, std::string> canonical[] = {
      {"efsign|ef", "efsign:bucket=2048|ef:lr=inside"},
      {"efsign|ef:lr=outside", "efsign:bucket=2048|ef:lr=outside"},
      {"efsign|rotate|ef", "efsign:bucket=2048|rotate:block=4096,rounds=1|ef:lr=inside"},
      {"onebit|ef", "onebit:bucket=2048|ef"},
      {"onebit|ef:lr=inside", "onebit:bucket=2048|ef:lr=inside"},
      {"bf16|ef:lr=outside", "bf16|ef"}};
  for (const auto& [spec, expected] : canonical) {
    const auto codec = *MakeCodec(spec);
    EXPECT_EQ(codec->spec(), expected);
    EXPECT_EQ((*MakeCodec(expected))->spec(), expected);
    EXPECT_EQ(HasLearningRate(*codec), expected.ends_with("inside")) << spec;
  }
  EXPECT_THAT(MakeCodec("efsign|ef:lr=0.1").status().message(),
              HasSubstr("modifier 'ef': lr=0.1 is not valid; use inside (of the memory)"));
  EXPECT_FALSE(HasLearningRate(**MakeCodec("dgc")));
  EXPECT_FALSE(HasLearningRate(**MakeCodec("efsign")));
}

TEST(Dgc, TellsItsMomentum) {
  EXPECT_FALSE(MomentumOf(**MakeCodec("topk|ef")));
  EXPECT_FALSE(MomentumOf(**MakeCodec("topk|dgc:momentum=0")));
  for (const std::string spec :
       {"topk|dgc:momentum=0.5,nesterov=yes", "dgc:momentum=0.5,nesterov=yes"}) {
    const auto momentum = MomentumOf(**MakeCodec(spec));
    ASSERT_TRUE(momentum) << spec;
    EXPECT_EQ(momentum->factor, .5);
    EXPECT_TRUE(momentum->nesterov);
  }
}

}  // namespace
}  // namespace elastiquant
