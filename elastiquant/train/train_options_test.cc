#include "elastiquant/train/train_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "elastiquant/train/fingerprint.h"

namespace elastiquant {
namespace {

using testing::HasSubstr;

TrainOptions Valid() {
  TrainOptions options;
  options.codec = "fp32";
  return options;
}

std::string ErrorOf(const TrainOptions& options) { return ValidateOptions(options).message(); }

TEST(TrainOptionsTest, TheDefaultsAreValid) {
  EXPECT_TRUE(ValidateOptions(Valid()).ok()) << ErrorOf(Valid());
}

TEST(TrainOptionsTest, EachErrorNamesTheOptionAndWhatIsValid) {
  TrainOptions o = Valid();
  for (double lr : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                    std::numeric_limits<double>::infinity()}) {
    o.learning_rate = lr;
    EXPECT_THAT(ErrorOf(o), HasSubstr("--lr")) << lr;
  }
  o = Valid();
  o.momentum = 1;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--momentum is 1; it must be in [0, 1)"));
  o = Valid();
  o.update = "adam";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--update is 'adam'; valid are: sgd, powersgd"));
  o.update = "powersgd";
  EXPECT_EQ(ErrorOf(o), "");
  o.momentum = 0;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--momentum above 0"));
  o = Valid();
  o.workers = 0;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--workers"));
  o = Valid();
  o.batch = 0;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--batch is 0; it must be at least 1"));
  o = Valid();
  o.schedule = "linear";
  EXPECT_THAT(ErrorOf(o), HasSubstr("constant, step, cosine"));
  o = Valid();
  o.codec = "fp33";
  EXPECT_THAT(ErrorOf(o), HasSubstr("fp32"));
  o = Valid();
  o.link = "20 bananas";
  EXPECT_FALSE(ErrorOf(o).empty());
  o = Valid();
  o.dump_gradients = "first";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--dump-gradients: 'first'"));
  o.dump_gradients = "1,50%,1000000";  // epochs may have as many
  EXPECT_EQ(ErrorOf(o), "");
  o.steps = 40;
  EXPECT_THAT(ErrorOf(o), HasSubstr("step 1000000 is beyond the run, which has 40 steps"));
  o = Valid();
  o.nesterov = true;
  o.momentum = 0;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--nesterov"));
}

TEST(TrainOptionsTest, PartitionsAreCheckedBeforeAnythingStarts) {
  TrainOptions o = Valid();
  o.partition = "dirichlet:alpha=.3";
  EXPECT_EQ(ErrorOf(o), "");
  o.partition = "fair";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--partition: partition 'fair' is not known; valid are: "
                                    "classes, dirichlet, iid, volumes"));
  o.partition = "classes:k=2";
  o.model = "gpt";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--partition classes:k=2 deals samples by their labels"));
  o.partition = "iid";
  EXPECT_EQ(ErrorOf(o), "");
  o = Valid();
  o.partition = "volumes:skew=10";
  o.codec = "terngrad";
  o.workers = 4;
  EXPECT_THAT(ErrorOf(o), HasSubstr("goes by integer sums, in which all weigh the same: give "
                                    "--exchange two-phase"));
  o.exchange = "two-phase";
  EXPECT_EQ(ErrorOf(o), "");
}

// Checkpoints from before there were partitions stay good.
TEST(TrainOptionsTest, OnlyAPartitionThatDealsIsInThePrint) {
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

TEST(TrainOptionsTest, AlgorithmsThatSendPartsNameTheirCodec) {
  TrainOptions o = Valid();
  for (const char* algorithm : {"uniform", "dagc-r", "dagc-a", "accordion"}) {
    o.algorithm = algorithm;
    o.codec = UsualCodecOf(o);
    EXPECT_EQ(o.codec, "topk:ratio=0.1,bits=16|ef");
    EXPECT_EQ(ErrorOf(o), "") << algorithm;
  }
  o.every = 10;
  EXPECT_EQ(ErrorOf(o), "");
  EXPECT_TRUE(TrainsAlone(o));
  EXPECT_EQ(Fingerprint(o, 2)["--every"], 10);
  o.on_loss = "go-on";
  EXPECT_THAT(ErrorOf(o), HasSubstr("what --algorithm accordion has learnt of earlier rounds"));
  o.on_loss = "stop";
  o.every = 1;
  EXPECT_FALSE(TrainsAlone(o));
  EXPECT_FALSE(Fingerprint(o, 2).contains("--every"));
  o.ratio = .02;
  EXPECT_THAT(ErrorOf(o), HasSubstr("leave out --codec"));
  o.codec = UsualCodecOf(o);
  EXPECT_EQ(ErrorOf(o), "");
  EXPECT_EQ(Fingerprint(o, 2)["--ratio"], .02);
  EXPECT_EQ(Fingerprint(o, 2)["--algorithm"], "accordion");
  o.ratio = 2;
  o.codec = UsualCodecOf(o);
  EXPECT_THAT(ErrorOf(o), HasSubstr("ratio"));
  o = Valid();
  o.ratio = .1;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--ratio is for --algorithm uniform, dagc-r"));
}

TEST(TrainOptionsTest, WorkersShareStepsWhereNobodyWaits) {
  TrainOptions o = Valid();
  for (const char* algorithm : {"allreduce", "dpsgd", "local-sgd", "none"}) {
    o.algorithm = algorithm;
    EXPECT_FALSE(SharesSteps(o)) << algorithm;
  }
  o.algorithm = "ad-psgd";
  EXPECT_TRUE(SharesSteps(o));
  o.on_loss = "go-on";
  EXPECT_FALSE(SharesSteps(o)) << "all meet after the same steps to take back who was lost";
}

TEST(TrainOptionsTest, DevicesHaveAPaceAndReplayedGradientsTrainNothing) {
  TrainOptions o = Valid();
  o.replay = "gradients";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--replay is for --compute"));
  o.compute = "250ms";
  EXPECT_THAT(ErrorOf(o), HasSubstr("give --steps"));
  o.steps = 3;
  EXPECT_EQ(ErrorOf(o), "");
  EXPECT_EQ(Fingerprint(o, 2)["--compute"], "250ms");
  o.checkpoint_every = 1;
  EXPECT_THAT(ErrorOf(o), HasSubstr("trains nothing"));
  o.checkpoint_every = 0;
  o.replay = "";
  o.steps = 0;
  o.checkpoint_every = 1;
  EXPECT_EQ(ErrorOf(o), "") << "without a replay it trains";
  o.algorithm = "quantised-data";
  o.codec = UsualCodecOf(o);
  EXPECT_THAT(ErrorOf(o), HasSubstr("workers compute those of others"));
  o.algorithm = "allreduce";
  o.compute = "quick";
  EXPECT_THAT(ErrorOf(o), HasSubstr("jetson-nano"));
}

TEST(TrainOptionsTest, PoliciesOfBitsAreCheckedBeforeAnythingStarts) {
  TrainOptions o = Valid();
  EXPECT_FALSE(Fingerprint(o, 2).contains("--bits-policy"));
  o.bits_policy = "noise:kappa=0.2";
  EXPECT_THAT(ErrorOf(o), HasSubstr("it needs --codec dither"));
  o.codec = UsualCodecOf(o);
  EXPECT_EQ(ErrorOf(o), "");
  EXPECT_EQ(Fingerprint(o, 2)["--bits-policy"], "noise:kappa=0.2");
  o.codec = "dither:bits=2,model=gauss";
  EXPECT_EQ(ErrorOf(o), "");
  o.codec = "dither:bits=3";
  EXPECT_THAT(ErrorOf(o), HasSubstr("without bits"));
  o.codec = "dither|ef";
  EXPECT_THAT(ErrorOf(o), HasSubstr("without bits"));
  o.codec = "dither";
  o.bits_policy = "greedy";
  EXPECT_THAT(ErrorOf(o), HasSubstr("valid are: adaquantfl, aqg, dadaquant"));
  o.bits_policy = "noise";
  o.algorithm = "local-sgd";
  EXPECT_EQ(ErrorOf(o), "");
  o.fragments = 2;
  EXPECT_THAT(ErrorOf(o), HasSubstr("leave out --fragments"));
  o.fragments = 1;
  o.on_loss = "go-on";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--bits-policy has learnt"));
  o.on_loss = "stop";
  o.algorithm = "lasg";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--algorithm allreduce, local-sgd or diloco"));
}

TEST(TrainOptionsTest, ErrorsOfOptimisersNameTheOptionToo) {
  TrainOptions o = Valid();
  o.optimizer = "adam";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--optimizer is 'adam'; valid are: sgd, adamw"));
  o.optimizer = "adamw";
  EXPECT_EQ(ErrorOf(o), "");
  o.beta2 = 1;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--beta2 is 1; it must be in [0, 1)"));
  o.beta2 = .95;
  o.nesterov = true;
  EXPECT_THAT(ErrorOf(o), HasSubstr("for --optimizer sgd"));
  o.nesterov = false;
  o.codec = "dgc";
  EXPECT_THAT(ErrorOf(o), HasSubstr("which --optimizer adamw has too"));
  o = Valid();
  o.metric = "adam";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--metric is 'adam'; valid are: auto, plain"));
  o = Valid();
  o.clip_norm = -1;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--clip-norm is -1;"));
  o = Valid();
  o.schedule = "wsd";
  EXPECT_EQ(ErrorOf(o), "");
  o.decay_part = 1.5;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--decay-part is 1.5"));
}

TEST(TrainOptionsTest, PrecisionIsFp32OrBf16) {
  TrainOptions o = Valid();
  EXPECT_FALSE(Fingerprint(o, 2).contains("--precision"));
  o.precision = "bf16";
  EXPECT_EQ(ErrorOf(o), "");
  EXPECT_EQ(Fingerprint(o, 2)["--precision"], "bf16");
  o.precision = "fp8";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--precision is 'fp8'; valid are: fp32, bf16"));
}

TEST(TrainOptionsTest, AlgorithmsSayWhatTheyNeed) {
  TrainOptions o = Valid();
  o.algorithm = "gossip";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--algorithm: algorithm 'gossip' is not known"));
  o.algorithm = "onebit-adam";
  EXPECT_THAT(ErrorOf(o), HasSubstr("needs --optimizer adamw"));
  o.optimizer = "adamw";
  o.codec = "efsign|ef:lr=outside";
  EXPECT_EQ(ErrorOf(o), "");
  EXPECT_EQ(MetricOf(o), "plain") << "what is sent is a momentum";
  EXPECT_EQ(Fingerprint(o, 2)["--algorithm"], "onebit-adam");
  EXPECT_FALSE(Fingerprint(Valid(), 2).contains("--algorithm"));
  o.algorithm = "demo";
  EXPECT_THAT(ErrorOf(o), HasSubstr("needs --optimizer sgd --momentum 0"));
  o = Valid();
  o.algorithm = "demo";
  o.momentum = 0;
  EXPECT_EQ(ErrorOf(o), "");
  o.clip_norm = 1;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--clip-norm has no meaning"));
  o.clip_norm = 0;
  o.codec = "dgc";
  EXPECT_THAT(ErrorOf(o), HasSubstr("which --algorithm demo has too"));
}

TEST(TrainOptionsTest, AMeanMayNotOverwriteAWholeRound) {
  TrainOptions o = Valid();
  o.every = 4;
  o.algorithm = "diloco:delay=4";
  EXPECT_THAT(ErrorOf(o), HasSubstr("overwrites all that this round has learnt"));
  for (const char* fine : {"diloco:delay=3", "local-sgd:delay=4,mix=0.5", "diloco:eager=1"}) {
    o.algorithm = fine;
    EXPECT_EQ(ErrorOf(o), "") << fine;
  }
}

TEST(TrainOptionsTest, SparseLoCoCompressesAllUnlessItIsToldOtherwise) {
  TrainOptions o = Valid();
  EXPECT_EQ(UsualExactOf(o), "1d");
  o.algorithm = "sparseloco:lr=0.5";
  EXPECT_EQ(UsualExactOf(o), "none");
  o.algorithm = "diloco";
  EXPECT_EQ(UsualExactOf(o), "1d");
}

TEST(TrainOptionsTest, OptionsThatWouldBeIgnoredAreRefused) {
  TrainOptions o = Valid();
  o.samples = "quantised:bits=4";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--samples is for --algorithm quantised-data"));
  for (const char* algorithm : {"dpsgd", "lag-wk", "quantised-data"}) {
    o = Valid();
    o.algorithm = algorithm;
    o.codec = UsualCodecOf(o).empty() ? "fp32" : UsualCodecOf(o);
    EXPECT_EQ(ErrorOf(o), "") << algorithm;
    o.exact = "none";
    EXPECT_THAT(ErrorOf(o), HasSubstr("it has no --exact")) << algorithm;
  }
  o.algorithm = "quantised-data:refine=1";
  EXPECT_EQ(ErrorOf(o), "");  // of refinements
  o = Valid();
  o.algorithm = "quantised-data";
  o.codec = UsualCodecOf(o);
  o.exchange = "two-phase";
  EXPECT_THAT(ErrorOf(o), HasSubstr("neither --exchange nor --codec-down"));
  o = Valid();
  o.codec = "dither:bits=2";
  o.adapt_every = 5;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--adapt-every is for codecs that fit their levels"));
  o.codec = "alq";
  EXPECT_EQ(ErrorOf(o), "");
  o = Valid();
  o.algorithm = "accordion:most=0.5";
  o.ratio = 0.1;
  EXPECT_THAT(ErrorOf(o), HasSubstr("leave out --ratio"));
  o = Valid();
  o.algorithm = "demo:block=8,top=65";
  o.codec = UsualCodecOf(o);
  o.momentum = 0;
  EXPECT_THAT(ErrorOf(o), HasSubstr("lower top"));
  o.algorithm = "demo:block=8,top=64";
  EXPECT_EQ(ErrorOf(o), "");
  o.algorithm = "demo:bits=8";
  EXPECT_THAT(ErrorOf(o), HasSubstr("bits=32, 16 (bfloat16) or 1 (signs), not 8"));
}

TEST(TrainOptionsTest, RoundsMayChange) {
  TrainOptions o = Valid();
  o.every_later = "4@5";
  EXPECT_THAT(ErrorOf(o), HasSubstr("are for algorithms whose workers train alone"));
  o.algorithm = "local-sgd";
  o.codec = "dither:bits=1";
  o.every = 8;
  o.every_later = "4@9,2@20";
  EXPECT_EQ(ErrorOf(o), "");
  EXPECT_EQ(ShortestRoundOf(o), 2);
  EXPECT_THAT(RoundEnds(o, 24), testing::ElementsAre(8, 16, 20, 22, 24));
  EXPECT_EQ(Fingerprint(o, 2)["--every-later"], "4@9,2@20");
  for (const char* bad : {"4", "4@", "@4", "0@4", "4@0", "4@9,2@9", "4@9,,2@20", "4@9 "}) {
    o.every_later = bad;
    EXPECT_THAT(ErrorOf(o), HasSubstr("give H@STEP")) << bad;
  }
  o.every_later = "4@9";
  o.every_growth = 2;
  EXPECT_THAT(ErrorOf(o), HasSubstr("give one of them"));

  // The rate rises for 4 steps, and is .1 until it falls: none of that changes rounds.
  o.every_later = "";
  o.schedule = "step";
  o.milestones = {.5};
  o.step_factor = .5;
  o.warmup_steps = 4;
  o.every = 2;
  EXPECT_THAT(RoundEnds(o, 16), testing::ElementsAre(2, 4, 6, 8, 16));
  o.every_growth = 0;
  EXPECT_THAT(RoundEnds(o, 16), testing::IsEmpty());
}

TEST(TrainOptionsTest, AlgorithmsThatReuseGradientsNeedSharesOfImages) {
  TrainOptions o = Valid();
  EXPECT_FALSE(NeedsShares(o));
  for (const char* algorithm : {"lag-wk", "lag-ps", "laq", "lasg"}) {
    o.algorithm = algorithm;
    o.model = "mlp";
    EXPECT_TRUE(NeedsShares(o)) << algorithm;
    o.model = "gpt";
    EXPECT_FALSE(NeedsShares(o)) << algorithm;  // text is not dealt
  }
}

TEST(TrainOptionsTest, SamplesAreCheckedBeforeAnythingStarts) {
  TrainOptions o = Valid();
  o.algorithm = "quantised-data:skip=0.3,unbiased=1";
  o.codec = UsualCodecOf(o);
  EXPECT_EQ(ErrorOf(o), "");
  EXPECT_TRUE(NeedsShares(o));
  EXPECT_EQ(Fingerprint(o, 2)["--samples"], "jpeg:quality=50");
  o.samples = "pixels:bits=9";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--samples: codec 'pixels': bits=9 is not valid"));
  o.samples = "pixels:bits=2";
  o.algorithm = "quantised-data:central=1,skip=0.3";
  EXPECT_THAT(ErrorOf(o), HasSubstr("have no model"));
  o.algorithm = "quantised-data:unbiased=1";
  EXPECT_THAT(ErrorOf(o), HasSubstr("it needs skip"));
  o.algorithm = "quantised-data";
  o.codec = "fp32";
  EXPECT_THAT(ErrorOf(o), HasSubstr("leave out --codec, or give refine=1"));
  o.algorithm = "quantised-data:refine=1";
  EXPECT_EQ(ErrorOf(o), "");
}

TEST(TrainOptionsTest, TheMetricIsThatOfTheOptimiser) {
  TrainOptions o = Valid();
  EXPECT_EQ(MetricOf(o), "plain");
  o.optimizer = "adamw";
  EXPECT_EQ(MetricOf(o), "plain") << "fp32 loses nothing, so nothing is converted";
  o.codec = "elastic";
  EXPECT_EQ(MetricOf(o), "adam");
  const auto print = Fingerprint(o, 2);
  EXPECT_EQ(print["--metric"], "adam");
  EXPECT_FALSE(print.contains("--momentum"));
  o.metric = "plain";
  EXPECT_EQ(MetricOf(o), "plain");
  EXPECT_THAT(CompareFingerprints(print, Fingerprint(o, 2)), HasSubstr("--metric was"));
}

TEST(TrainOptionsTest, WhoSharesTheStepsOfAdPsgdIsPartOfTheRun) {
  TrainOptions o = Valid();
  o.algorithm = "ad-psgd";
  const auto print = Fingerprint(o, 4);
  o.on_loss = "go-on";
  EXPECT_THAT(CompareFingerprints(print, Fingerprint(o, 4)), HasSubstr("--on-loss was"));
  o.algorithm = "choco";
  EXPECT_FALSE(Fingerprint(o, 4).contains("--on-loss")) << "its steps are the same";
}

TEST(TrainOptionsTest, FingerprintsTellWhichOptionDiffers) {
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

TEST(TrainOptionsTest, FingerprintsTellTheEdgesOfAFile) {
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

TEST(TrainOptionsTest, OnlyThoseThatMeetInRoundsGoOnWithoutAWorker) {
  TrainOptions o = Valid();
  o.on_loss = "go-on";
  EXPECT_THAT(ValidateOptions(o).message(),
              HasSubstr("such as choco; under --algorithm allreduce every step needs all"));
  for (const char* algorithm : {"local-sgd", "diloco:eager=1", "sparseloco"}) {
    o.algorithm = algorithm;
    o.codec = "dither:bits=1";
    EXPECT_TRUE(ValidateOptions(o).ok()) << ValidateOptions(o).ToString();
  }
  o.graph = "complete";
  for (const char* algorithm :
       {"dpsgd", "dcd", "choco:delay=1", "deepsqueeze", "noloco", "sgp"}) {
    o.algorithm = algorithm;
    EXPECT_TRUE(ValidateOptions(o).ok()) << ValidateOptions(o).ToString();
  }
  for (const char* algorithm : {"d2", "gradient-tracking", "ecd"}) {
    o.algorithm = algorithm;
    EXPECT_THAT(ValidateOptions(o).message(), HasSubstr("take dpsgd, dcd, choco"));
  }
  o.algorithm = "local-sgd";
  o.graph = "";
  o.codec = "powersgd:rank=2";
  EXPECT_THAT(ValidateOptions(o).message(), HasSubstr("take another codec"));
  o.on_loss = "wait";
  EXPECT_THAT(ValidateOptions(o).message(), HasSubstr("valid are: stop, go-on"));
  o.on_loss = "stop";
  o.least_workers = 2;
  EXPECT_THAT(ValidateOptions(o).message(),
              HasSubstr("--least-workers is for --on-loss go-on"));
}

TEST(TrainOptionsTest, WorkersMayDifferInPathsOnly) {
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

TEST(TrainOptionsTest, BitsThatFollowMeasurementsAreOfTheirSchedule) {
  TrainOptions a = Valid(), b = Valid();
  b.measure_every = a.measure_every + 1;
  EXPECT_EQ(CompareFingerprints(Fingerprint(a, 2), Fingerprint(b, 2)), "");
  a.codec = b.codec = "dither";
  a.bits_policy = b.bits_policy = "noise:kappa=0.2";
  EXPECT_THAT(CompareFingerprints(Fingerprint(a, 2), Fingerprint(b, 2)),
              HasSubstr("--measure-every was"));
}

TEST(TrainOptionsTest, OptionsOfOtherSchedulesOptimisersAndStartsAreRefused) {
  TrainOptions o = Valid();
  o.milestones = {.3};
  EXPECT_THAT(ErrorOf(o), HasSubstr("--milestones and --step-factor are for --schedule step"));
  o.schedule = "step";
  EXPECT_EQ(ErrorOf(o), "");
  o = Valid();
  o.decay_part = .1;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--decay-part is for --schedule wsd"));
  o = Valid();
  o.beta2 = .95;
  EXPECT_THAT(ErrorOf(o), HasSubstr("are for --optimizer adamw"));
  o.optimizer = "adamw";
  EXPECT_EQ(ErrorOf(o), "");
  o.momentum = .5;
  EXPECT_THAT(ErrorOf(o), HasSubstr("adamw has --beta1"));
  o = Valid();
  o.exact_steps = 1;
  EXPECT_THAT(ErrorOf(o), HasSubstr("--exact-steps is for gradients"));
  o.optimizer = "adamw";
  EXPECT_EQ(ErrorOf(o), "");
  o.metric = "plain";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--exact-steps is for gradients"));
  o.metric = "auto";
  o.algorithm = "local-sgd";
  EXPECT_THAT(ErrorOf(o), HasSubstr("--exact-steps is for gradients"));
  o = Valid();
  o.resume = o.overwrite = true;
  EXPECT_THAT(ErrorOf(o), HasSubstr("give one of them"));
}

TEST(TrainOptionsTest, NumbersBeyondAllUseAreRefused) {
  const auto error = [](const auto& set) {
    TrainOptions o = Valid();
    set(o);
    return ErrorOf(o);
  };
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(error([](auto& o) { o.epochs = kHuge; }),
              HasSubstr("--epochs is 9223372036854775807; it must be at most 1000000000"));
  EXPECT_THAT(error([](auto& o) { o.bucket_kib = kHuge; }), HasSubstr("--bucket-kib"));
  EXPECT_THAT(error([](auto& o) { o.loader_threads = 100000; }), HasSubstr("at most 1024"));
  EXPECT_THAT(error([](auto& o) { o.image_size = -5; }), HasSubstr("--image-size is -5"));
  EXPECT_THAT(error([](auto& o) { o.algorithm = "diloco:lr=inf"; }),
              HasSubstr("lr=inf is not valid; use numbers above 0"));
  EXPECT_THAT(error([](auto& o) { o.compute = "abacus"; }),
              HasSubstr("none of these devices: jetson"));
}

TEST(TrainOptionsTest, OnlyAConstantScheduleMayGrowLonger) {
  TrainOptions a = Valid(), b = Valid();
  b.epochs = a.epochs + 1;
  EXPECT_THAT(CompareFingerprints(Fingerprint(a, 2), Fingerprint(b, 2)), HasSubstr("--epochs"));
  a.schedule = b.schedule = "constant";
  EXPECT_EQ(CompareFingerprints(Fingerprint(a, 2), Fingerprint(b, 2)), "");
}

}  // namespace
}  // namespace elastiquant
