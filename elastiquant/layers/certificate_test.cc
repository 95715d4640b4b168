#include "elastiquant/layers/certificate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {
namespace {

using nlohmann::json;

// Two matrices in a bucket of 1700 coordinates and a bias in an exact one.
const std::vector<ParameterShape> kShapes = {
    {"first.weight", 700, 2, 7}, {"first.bias", 10, 1, 1}, {"second.weight", 1000, 2, 10}};

BucketPlan Plan() { return PlanBuckets(kShapes, {.bucket_elements = 5000}).value(); }

size_t LossyBucket(const BucketPlan& plan) { return plan.buckets[0].exact ? 1 : 0; }

// Sends made-up gradients of the lossy bucket, in two parts, and certifies them.
class Sender {
 public:
  explicit Sender(const std::string& spec)
      : plan_(Plan()), certificate_(plan_, kShapes), codec_(MakeCodec(spec).value()) {}

  Certificate& certificate() { return certificate_; }

  void Send(int steps) {
    for (int i = 0; i < steps; ++i, ++step_) {
      SendPart({0, 1024});
      SendPart({1024, 676});
    }
  }

  // A layer without a gradient: the coordinates of a message below this are zeros.
  void set_dead(size_t dead) { dead_ = dead; }
  // As if errors were `factor` times what they are.
  void set_factor(float factor) { factor_ = factor; }

 private:
  void SendPart(Chunk part) {
    std::vector<float> input(part.size), error(part.size);
    for (size_t i = 0; i < part.size; ++i) {
      const auto at = static_cast<double>(part.begin + i + 1);
      input[i] = i < dead_ ? 0 : static_cast<float>(std::sin(at * (step_ + 1)) / at);
    }
    std::vector<uint8_t> frame(codec_->MaxFrameBytes(part.size));
    const auto key = DeriveKey(1, static_cast<uint64_t>(step_), 0, part.begin);
    frame.resize(codec_->Encode(input, key, work_, frame).value());
    ASSERT_TRUE(DecodeFrame(frame, work_, error).ok());
    for (size_t i = 0; i < part.size; ++i) error[i] = factor_ * (input[i] - error[i]);
    certificate_.Add({LossyBucket(plan_), part, codec_.get(), input, error, frame});
  }

  BucketPlan plan_;
  Certificate certificate_;
  std::shared_ptr<const Codec> codec_;
  Workspace work_{1};
  int step_ = 0;
  float factor_ = 1;
  size_t dead_ = 0;
};

json LineOf(const std::vector<json>& lines, const std::string& layer) {
  for (const json& line : lines) {
    if (line["layer"] == layer) return line;
  }
  ADD_FAILURE() << "no line of layer '" << layer << "'";
  return {};
}

TEST(Certificate, NoiseIsTheMeanSquaredErrorOfAValue) {
  Sender one("qsgdv:bits=4,bucket=256"), twice("qsgdv:bits=4,bucket=256");
  twice.set_factor(2);
  one.Send(3);
  twice.Send(3);
  const json a = LineOf(one.certificate().TakeLines(3, 1), "");
  const json b = LineOf(twice.certificate().TakeLines(3, 1), "");
  EXPECT_NEAR(b["noise"].get<double>(), 4 * a["noise"].get<double>(), 1e-12);
  // The same error relative to what was encoded, whose squared norm is that of both parts.
  EXPECT_NEAR(a["noise"].get<double>() / a["nmse"].get<double>(),
              b["noise"].get<double>() / b["nmse"].get<double>(), 1e-12);
}

TEST(Certificate, HasALineForEachCompressedLayerAndOneOfAll) {
  Sender sender("qsgdv:bits=4,bucket=256");
  sender.Send(10);
  const std::vector<json> lines = sender.certificate().TakeLines(390, 3);
  ASSERT_EQ(lines.size(), 3u);
  double coordinates = 0;
  for (const char* layer : {"first.weight", "second.weight"}) {
    const json line = LineOf(lines, layer);
    EXPECT_EQ(line["step"], 390);
    EXPECT_EQ(line["epoch"], 3);
    EXPECT_GT(line["nmse"], 0);
    EXPECT_LE(line["nmse"],
              line["worst_case"].get<double>() + 5 * line["spread"].get<double>());
    EXPECT_LE(line["worst_case"], line["bound"]);
    EXPECT_GT(line["noise"], 0);
    EXPECT_NE(line["verdict"], "exceeded");
    EXPECT_LE(line["bits"], line["bits_bound"]);
    EXPECT_GT(line["bits"], 4);
    coordinates += line["coordinates"].get<double>();
  }
  EXPECT_EQ(coordinates, 17000);
  EXPECT_EQ(LineOf(lines, "")["coordinates"], coordinates);
  EXPECT_EQ(LineOf(lines, "")["messages"], 20);
  EXPECT_TRUE(sender.certificate().TakeLines(780, 4).empty());
}

TEST(Certificate, TheBoundOfAllLayersIsThatOfTheirBuckets) {
  Sender sender("qsgdv:bits=4,bucket=0");
  sender.Send(10);
  const json all = LineOf(sender.certificate().TakeLines(1, 1), "");
  const auto codec = MakeCodec("qsgdv:bits=4,bucket=0").value();
  EXPECT_GE(all["bound"], *codec->NmseBound(676) * (1 - 1e-12));
  EXPECT_LE(all["bound"], *codec->NmseBound(1024) * (1 + 1e-12));
}

TEST(Certificate, MarksAnErrorAboveTheBound) {
  Sender sender("qsgdv:bits=4,bucket=256");
  sender.set_factor(30);
  sender.Send(10);
  for (const json& line : sender.certificate().TakeLines(1, 1)) {
    EXPECT_EQ(line["verdict"], "exceeded") << line;
  }
}

TEST(Certificate, MarksBoundsThatSayLittle) {
  Sender sender("natural");
  sender.set_factor(0.2f);
  sender.Send(10);
  for (const json& line : sender.certificate().TakeLines(1, 1)) {
    EXPECT_EQ(line["verdict"], "loose") << line;
    EXPECT_TRUE(line["worst_case"].is_null());
  }
}

TEST(Certificate, HoldsFramesToTheVarianceTheyTell) {
  Sender sender("dither:bits=3");
  sender.Send(40);
  const json all = LineOf(sender.certificate().TakeLines(1, 1), "");
  EXPECT_NEAR(all["nmse"].get<double>() / all["bound"].get<double>(), 1, .05);
  EXPECT_EQ(all["verdict"], "holds");
}

// Levels that differ from frame to frame: the bound is that of those which were sent, far below
// what holds for any.
TEST(Certificate, HoldsFittedLevelsToTheirOwnBound) {
  for (const std::string spec :
       {"elastic:levels=fit,bucket=256", "elastic:levels=fit|rans|ef"}) {
    Sender sender(spec);
    sender.Send(20);
    const auto any = *MakeCodec(spec).value()->NmseBound(1024);
    for (const json& line : sender.certificate().TakeLines(1, 1)) {
      EXPECT_GT(line["bound"], 0) << line;
      EXPECT_LT(line["bound"], any / 4) << line;
      EXPECT_LE(line["worst_case"], line["bound"]) << line;
      EXPECT_LE(line["nmse"],
                line["worst_case"].get<double>() + 5 * line["spread"].get<double>());
      EXPECT_NE(line["verdict"], "exceeded") << line;
    }
    sender.set_factor(300);  // messages differ widely
    sender.Send(20);
    for (const json& line : sender.certificate().TakeLines(1, 1)) {
      EXPECT_EQ(line["verdict"], "exceeded") << line;
    }
  }
}

TEST(Certificate, DeadCoordinatesDoNotMakeTheLiveOnesSuspect) {
  Sender sender("dither:bits=3");
  sender.set_dead(512);
  sender.Send(40);
  const std::vector<json> lines = sender.certificate().TakeLines(1, 1);
  const json all = LineOf(lines, "");
  EXPECT_NEAR(all["nmse"].get<double>() / all["bound"].get<double>(), 1, .05);
  for (const json& line : lines) EXPECT_EQ(line["verdict"], "holds") << line;
}

TEST(Certificate, SaysWhereNoBoundIsKnown) {
  Sender sender("eden:bits=2");
  sender.Send(10);
  for (const json& line : sender.certificate().TakeLines(1, 1)) {
    EXPECT_TRUE(line["bound"].is_null());
    EXPECT_EQ(line["verdict"], "unbounded");
  }
}

TEST(Certificate, ChanceIsNoBug) {
  // Of n messages that all have the same norm.
  const auto of = [](double n, double error_error) {
    return CertificateSums{.messages = n,
                           .squared_norm = 4,
                           .squared_error = 40,
                           .bound = 4,
                           .error_error = error_error,
                           .error_norm = 5 * 16 / n,
                           .norm_norm = 16 / n};
  };
  EXPECT_EQ(Judge(of(4, 32)), Verdict::kHolds) << "too few messages to tell";
  EXPECT_EQ(Judge(of(8, 32)), Verdict::kExceeded);
  EXPECT_EQ(Judge(of(100, 400)), Verdict::kHolds) << "a spread of 20 about a mean of 40";
  CertificateSums sums = of(100, 32);
  EXPECT_EQ(Judge(sums), Verdict::kExceeded);
  EXPECT_DOUBLE_EQ(sums.EffectiveMessages(), 100);
  sums.norm_norm = 15.9;  // one message has nearly all of the norm
  sums.error_norm = 5 * sums.norm_norm;
  EXPECT_NEAR(sums.EffectiveMessages(), 1, .01);
  EXPECT_EQ(Judge(sums), Verdict::kHolds);
}

TEST(Certificate, GoesOnFromACheckpointWithinAnEpoch) {
  Sender whole("qsgd:bits=4"), broken("qsgd:bits=4");
  whole.Send(6);
  broken.Send(6);
  const json state = json::parse(broken.certificate().SaveState().dump());
  ASSERT_TRUE(broken.certificate().LoadState(state).ok());
  EXPECT_EQ(whole.certificate().TakeLines(9, 1), broken.certificate().TakeLines(9, 1));
}

TEST(Certificate, RefusesWhatIsNoStateOfIts) {
  Sender sender("qsgd:bits=4");
  sender.Send(6);
  const json state = sender.certificate().SaveState();
  const auto expect_refused = [&](const json& damaged) {
    EXPECT_EQ(sender.certificate().LoadState(damaged).code(), StatusCode::kCorruptData)
        << damaged;
    EXPECT_EQ(sender.certificate().SaveState(), state) << "nothing has changed";
  };
  json damaged = state;
  for (const json& wrong : {json("nan"), json::array(), json()}) {
    damaged["sums"][1] = wrong;
    expect_refused(damaged);
    expect_refused(wrong);
  }
  damaged = state;
  damaged["sums"][1].erase(0);
  expect_refused(damaged);
  damaged = state;
  damaged["sums"][1][2] = "1.5";
  expect_refused(damaged);
  damaged = state;
  damaged["sums"].erase(0);
  expect_refused(damaged);
  damaged = state;
  damaged.erase("layers");
  expect_refused(damaged);
}

TEST(Certificate, BeginsAnewWithOtherLayers) {
  Sender sender("qsgd:bits=4");
  sender.Send(6);
  const json state = sender.certificate().SaveState();
  json others = state;
  others["layers"][0] = "another";
  EXPECT_TRUE(sender.certificate().LoadState(others).ok());
  EXPECT_EQ(sender.certificate().SaveState(), state);
}

}  // namespace
}  // namespace elastiquant
