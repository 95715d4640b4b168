#include "elastiquant/train/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "elastiquant/train/options_testing.h"

namespace elastiquant {
namespace {

using testing::HasSubstr;

// Checkpoints from before there were partitions stay good.
TEST(FingerprintTest, OnlyAPartitionThatDealsIsInThePrint) {
  TrainOptions o = Valid();
  EXPECT_FALSE(Fingerprint(o, 2).contains("--partition"));
  o.partition = "dirichlet:alpha=.3";
  const nlohmann::json print = Fingerprint(o, 2);
  EXPECT_EQ(print["--partition"], "dirichlet:alpha=0.3");
  o.partition = "dirichlet:alpha=0.30";
  EXPECT_EQ(CompareFingerprints(print, Fingerprint(o, 2)), "");
  o.partition = "dirichlet:alpha=0.1";
  EXPECT_EQ(CompareFingerprints(print, Fingerprint(o, 2)),
            "--partition was \"dirichlet:alpha=0.3\" and is \"dirichlet:alpha=0.1\"");
}

TEST(FingerprintTest, WhoSharesTheStepsOfAdPsgdIsPartOfTheRun) {
  TrainOptions o = Valid();
  o.algorithm = "ad-psgd";
  const auto print = Fingerprint(o, 4);
  o.on_loss = "go-on";
  EXPECT_THAT(CompareFingerprints(print, Fingerprint(o, 4)), HasSubstr("--on-loss was"));
  o.algorithm = "choco";
  EXPECT_FALSE(Fingerprint(o, 4).contains("--on-loss")) << "its steps are the same";
}

TEST(FingerprintTest, FingerprintsTellWhichOptionDiffers) {
  TrainOptions a = Valid(), b = Valid();
  EXPECT_EQ(CompareFingerprints(Fingerprint(a, 2), Fingerprint(b, 2)), "");
  b.quiet = true;  // no weight depends on it
  b.dump_gradients = "1";
  b.checkpoint_every = 7;
  EXPECT_EQ(CompareFingerprints(Fingerprint(a, 2), Fingerprint(b, 2)), "");
  b.learning_rate = 0.2;
  EXPECT_EQ(CompareFingerprints(Fingerprint(a, 2), Fingerprint(b, 2)),
            "--lr was 0.1 and is 0.2");
  EXPECT_THAT(CompareFingerprints(Fingerprint(a, 2), Fingerprint(a, 4)),
              HasSubstr("--workers was 2 and is 4"));
  a.init = "weights.safetensors";  // what it holds counts, not where it is
  EXPECT_EQ(CompareFingerprints(Fingerprint(a, 2, "x"), Fingerprint(Valid(), 2, "x")), "");
  EXPECT_EQ(CompareFingerprints(Fingerprint(a, 2, "x"), Fingerprint(a, 2, "y")),
            "--init was \"x\" and is \"y\"");
  EXPECT_EQ(CompareFingerprints(Fingerprint(a, 2), Fingerprint(a, 2, "y")),
            "--init was not given and is \"y\"");
}

TEST(FingerprintTest, FingerprintsTellTheEdgesOfAFile) {
  TrainOptions a = Valid(), b = Valid();
  a.algorithm = b.algorithm = "dpsgd";
  a.graph = "ring";
  EXPECT_EQ(DescribeEdges(a, 4).value(), "");
  EXPECT_EQ(Fingerprint(a, 4)["--graph"], "ring");
  a.graph = testing::TempDir() + "a.txt";
  b.graph = testing::TempDir() + "b.txt";
  std::ofstream(a.graph) << "0 1\n1 2\n2 3\n";
  std::ofstream(b.graph) << "2 3\n1 2\n0 1\n";  // where it lies does not count
  const std::string edges = DescribeEdges(a, 4).value();
  EXPECT_THAT(edges, HasSubstr("a file of edges with the digest"));
  EXPECT_EQ(DescribeEdges(b, 4).value(), edges);
  EXPECT_EQ(CompareFingerprints(Fingerprint(a, 4, "", edges), Fingerprint(b, 4, "", edges)),
            "");
  std::ofstream(b.graph) << "2 3\n1 2\n0 1\n3 0\n";
  const std::string others = DescribeEdges(b, 4).value();
  EXPECT_THAT(CompareFingerprints(Fingerprint(a, 4, "", edges), Fingerprint(b, 4, "", others)),
              HasSubstr("--graph was \"a file of edges"));
}

TEST(FingerprintTest, WorkersMayDifferInPathsOnly) {
  TrainOptions a = Valid(), b = Valid();
  b.data = "/elsewhere";
  b.out = "other";
  b.threads = 3;
  EXPECT_TRUE(CheckAlike(1, OptionsOfAll(a, 2, ""), OptionsOfAll(b, 2, "")).ok());
  b.learning_rate = .25;
  b.epochs = a.epochs + 1;
  const Status status = CheckAlike(1, OptionsOfAll(a, 2, ""), OptionsOfAll(b, 2, ""));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("worker 1 was started with other options"));
  EXPECT_THAT(status.message(), HasSubstr("--lr is 0.25 and not 0.1"));
  TrainOptions clipped = a;
  clipped.clip_norm = 3;
  EXPECT_THAT(CheckAlike(1, OptionsOfAll(a, 2, ""), OptionsOfAll(clipped, 2, "")).message(),
              HasSubstr("--clip-norm is 3.0, which the others do not have"));
  EXPECT_THAT(status.message(), HasSubstr("--epochs is"));
  a = b = Valid();
  b.checkpoint_every = 7;
  EXPECT_THAT(CheckAlike(1, OptionsOfAll(a, 2, ""), OptionsOfAll(b, 2, "")).message(),
              HasSubstr("--checkpoint-every is 7 and not 0"));
}

TEST(FingerprintTest, BitsThatFollowMeasurementsAreOfTheirSchedule) {
  TrainOptions a = Valid(), b = Valid();
  b.measure_every = a.measure_every + 1;
  EXPECT_EQ(CompareFingerprints(Fingerprint(a, 2), Fingerprint(b, 2)), "");
  a.codec = b.codec = "dither";
  a.bits_policy = b.bits_policy = "noise:kappa=0.2";
  EXPECT_THAT(CompareFingerprints(Fingerprint(a, 2), Fingerprint(b, 2)),
              HasSubstr("--measure-every was"));
}

TEST(FingerprintTest, OnlyAConstantScheduleMayGrowLonger) {
  TrainOptions a = Valid(), b = Valid();
  b.epochs = a.epochs + 1;
  EXPECT_THAT(CompareFingerprints(Fingerprint(a, 2), Fingerprint(b, 2)), HasSubstr("--epochs"));
  a.schedule = b.schedule = "constant";
  EXPECT_EQ(CompareFingerprints(Fingerprint(a, 2), Fingerprint(b, 2)), "");
}

}  // namespace
}  // namespace elastiquant
