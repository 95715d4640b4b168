#include "elastiquant/train/algorithm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "elastiquant/train/fingerprint.h"
#include "elastiquant/train/options_testing.h"

namespace elastiquant {
namespace {

using testing::HasSubstr;

TEST(AlgorithmValidation, AlgorithmsThatSendPartsNameTheirCodec) {
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

TEST(AlgorithmValidation, WorkersShareStepsWhereNobodyWaits) {
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

TEST(AlgorithmValidation, AlgorithmsSayWhatTheyNeed) {
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

TEST(AlgorithmValidation, AMeanMayNotOverwriteAWholeRound) {
  TrainOptions o = Valid();
  o.every = 4;
  o.algorithm = "diloco:delay=4";
  EXPECT_THAT(ErrorOf(o), HasSubstr("overwrites all that this round has learnt"));
  for (const char* fine : {"diloco:delay=3", "local-sgd:delay=4,mix=0.5", "diloco:eager=1"}) {
    o.algorithm = fine;
    EXPECT_EQ(ErrorOf(o), "") << fine;
  }
}

TEST(AlgorithmValidation, SparseLoCoCompressesAllUnlessItIsToldOtherwise) {
  TrainOptions o = Valid();
  EXPECT_EQ(UsualExactOf(o), "1d");
  o.algorithm = "sparseloco:lr=0.5";
  EXPECT_EQ(UsualExactOf(o), "none");
  o.algorithm = "diloco";
  EXPECT_EQ(UsualExactOf(o), "1d");
}

TEST(AlgorithmValidation, RoundsMayChange) {
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

TEST(AlgorithmValidation, AlgorithmsThatReuseGradientsNeedSharesOfImages) {
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

TEST(AlgorithmValidation, SamplesAreCheckedBeforeAnythingStarts) {
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

TEST(AlgorithmValidation, OnlyThoseThatMeetInRoundsGoOnWithoutAWorker) {
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

}  // namespace
}  // namespace elastiquant
