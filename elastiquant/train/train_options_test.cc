#include "elastiquant/train/train_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "elastiquant/train/fingerprint.h"
#include "elastiquant/train/options_testing.h"

namespace elastiquant {
namespace {

using testing::HasSubstr;

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

}  // namespace
}  // namespace elastiquant
