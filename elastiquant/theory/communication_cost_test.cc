#include "elastiquant/theory/communication_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "elastiquant/theory/codec_bounds.h"
#include "elastiquant/theory/theory_test_util.h"

namespace elastiquant::theory {
namespace {

TEST(BoundsOf, CodecsOfEveryKind) {
  const auto elastic = BoundsOf(*Make("elastic:bits=4,levels=exp"), 100000, true);
  EXPECT_NEAR(*elastic.variance, .15625, 1e-6);
  EXPECT_NEAR(*elastic.worst_case, .12445, 1e-5);
  EXPECT_NEAR(*elastic.attained, .12445, 1e-5);
  EXPECT_NEAR(elastic.frame_bits / 100000, 4 + 32.0 / 512, .01);
  const auto qsgd = BoundsOf(*Make("qsgd:bits=4"), 100000);
  EXPECT_LT(*qsgd.worst_case, *qsgd.variance);
  EXPECT_FALSE(qsgd.attained.has_value());
  // A message shorter than a bucket is a shorter bucket.
  EXPECT_EQ(*BoundsOf(*Make("elastic:bits=4,levels=exp"), 1).worst_case, 0);
  // Dither has the same variance for every bucket, and no worst case of its own.
  const auto dither = BoundsOf(*Make("elastic:levels=uniform,rounding=dither"), 1000);
  EXPECT_TRUE(dither.variance.has_value());
  EXPECT_FALSE(dither.worst_case.has_value());
  const auto topk = BoundsOf(*Make("topk:ratio=0.1"), 1000);
  EXPECT_FALSE(topk.worst_case.has_value());
  EXPECT_GT(topk.frame_bits, 0);
  EXPECT_FALSE(PlannedVariance(BoundsOf(*Make("eden"), 1000)).has_value());
}

TEST(StepBits, AreThoseOfTheFramesOfBothPhases) {
  Cluster cluster;
  cluster.workers = 4;
  cluster.parameters = 4 * 51200;
  const double frame = 8.0 * static_cast<double>(Make("fp32")->MaxFrameBytes(51200));
  EXPECT_EQ(StepBits(*Make("fp32"), cluster), 6 * frame);
  cluster.link = {20e6, .01};
  cluster.compute_seconds = .5;
  EXPECT_NEAR(StepSeconds(20e6, Exchange::kTwoPhase, cluster), 1.52, 1e-12);
  EXPECT_NEAR(StepSeconds(20e6, Exchange::kAllGather, cluster), 1.51, 1e-12);
  const double all = 8.0 * static_cast<double>(Make("topk:ratio=0.01")->MaxFrameBytes(204800));
  EXPECT_EQ(StepBits(*Make("topk:ratio=0.01"), cluster), 3 * all);
}

TEST(StepBits, OfIntegerSumsAreScalesPartsAndSums) {
  Cluster cluster;
  cluster.workers = 4;
  cluster.parameters = 4 * 51200;
  const auto codec = Make("terngrad:bucket=2048");
  // The mean has its 25 scales, and 4 bits at most for a digit in base 9.
  const double frame = 8.0 * static_cast<double>(codec->MaxFrameBytes(51200));
  const double least = 3 * (32 * 125 + frame + 4 * 51200);
  EXPECT_GT(StepBits(*codec, cluster), least);
  EXPECT_LT(StepBits(*codec, cluster), 1.04 * least) << "headers, and rANS's at their longest";
  cluster.link = {20e6, .01};
  EXPECT_NEAR(StepSeconds(20e6, Exchange::kIntegerSum, cluster), 1.03, 1e-12);
}

// What two phases lose on the way back costs more than the bits of sums.
TEST(CostOf, IntegerSumsCountTheScaleOfAllWorkers) {
  const SgdProblem problem;
  Cluster cluster;
  cluster.link = {20e6, 0};
  const Cost sums = *CostOf("terngrad:clip=0,bucket=64", problem, cluster, .01);
  EXPECT_NEAR(sums.variance, 7.5, 1e-4) << "(sqrt(4 * 64) - 1) / 2";
  EXPECT_EQ(sums.steps, ConvexSteps(problem, (1 + sums.variance) / 4, .01));
  cluster.workers = 128;
  EXPECT_FALSE(CostOf("terngrad:clip=0", problem, cluster, .01).ok());
}

TEST(CostOf, IsIterationsTimesBits) {
  SgdProblem problem;
  Cluster cluster;
  cluster.link = {20e6, 0};
  const Cost full = *CostOf("fp32", problem, cluster, .01);
  EXPECT_EQ(full.variance, 0);
  EXPECT_EQ(full.steps, ConvexSteps(problem, problem.noise / 4, .01));
  EXPECT_NEAR(full.seconds, full.bits / 20e6, 1e-9 * full.seconds);
  const Cost four = *CostOf("elastic:bits=4,levels=exp", problem, cluster, .01);
  EXPECT_GT(four.steps, full.steps);
  EXPECT_LT(four.seconds, full.seconds / 6);
}

TEST(CostOf, RefusesWhatHasNoVarianceOrIsOutOfRange) {
  const SgdProblem problem;
  Cluster cluster;
  cluster.link = {1e6, 0};
  for (const char* spec : {"topk:ratio=0.1", "eden", "signsgd", "nonsense"}) {
    EXPECT_EQ(CostOf(spec, problem, cluster, 1).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(CostOf("fp32", problem, cluster, 0).ok());
  EXPECT_FALSE(CostOf("fp32", problem, cluster, std::nan("")).ok());
  SgdProblem odd;
  odd.noise = 2;  // more than all of the gradient
  EXPECT_FALSE(CostOf("fp32", odd, cluster, 1).ok());
  cluster.workers = 1;
  EXPECT_FALSE(CostOf("fp32", problem, cluster, 1).ok());
}

TEST(CostOf, NamesAFigureThatIsNegativeOrNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  struct Inputs {
    SgdProblem problem;
    Cluster cluster{.link = {1e6, 0}};
    double target = 1;
  };
  const auto refused = [](const char* name, const auto& set) {
    for (const double value : {-1.0, std::nan(""), kInfinity}) {
      Inputs in;
      set(&in, value);
      const Status status = CostOf("fp32", in.problem, in.cluster, in.target).status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name << value;
      EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
    }
  };
  refused("target", [](Inputs* in, double v) { in->target = v; });
  refused("smoothness", [](Inputs* in, double v) { in->problem.smoothness = v; });
  refused("distance", [](Inputs* in, double v) { in->problem.distance = v; });
  refused("noise", [](Inputs* in, double v) { in->problem.noise = v; });
  refused("second moment", [](Inputs* in, double v) { in->problem.second_moment = v; });
  refused("rate of the link",
          [](Inputs* in, double v) { in->cluster.link.bits_per_second = v; });
  refused("delay of the link",
          [](Inputs* in, double v) { in->cluster.link.delay_seconds = v; });
  refused("step computes", [](Inputs* in, double v) { in->cluster.compute_seconds = v; });
  Inputs many;
  many.cluster.parameters = std::numeric_limits<size_t>::max();
  EXPECT_FALSE(CostOf("fp32", many.problem, many.cluster, 1).ok());
  EXPECT_FALSE(CostOf("fp32", many.problem, Inputs{}.cluster, 1e-300).ok());
}

// A slow link is worth fewer bits than a fast one with long steps of computation.
TEST(RankSettings, MinimisesAndFollowsTheLink) {
  const SgdProblem problem;
  Cluster cluster;
  cluster.parameters = 200000;
  cluster.link = {1e6, 0};
  const auto slow = RankSettings(problem, cluster, .01);
  ASSERT_TRUE(slow.ok()) << slow.status().ToString();
  for (size_t i = 1; i < slow->size(); ++i) {
    ASSERT_GE((*slow)[i].seconds, (*slow)[i - 1].seconds);
  }
  EXPECT_LE(slow->front().seconds,
            CostOf("elastic:bits=4,levels=exp", problem, cluster, .01)->seconds);
  cluster.link = {1e10, 0};
  cluster.compute_seconds = 1;
  const auto fast = RankSettings(problem, cluster, .01);
  EXPECT_GT(fast->front().bits_per_coordinate, slow->front().bits_per_coordinate);
  EXPECT_LT(fast->front().variance, slow->front().variance);
}

}  // namespace
}  // namespace elastiquant::theory
