#include "elastiquant/policy/worker_sparsity.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "elastiquant/codec/codec.h"
#include "elastiquant/policy/policy_testing.h"

namespace elastiquant::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<double> kVolumes = {.7, .25, .05};

std::unique_ptr<WorkerSparsity> Make(std::string_view text, double ratio, size_t worker) {
  auto made = WorkerSparsity::Make(ParseSparsity(text).value(), ratio, kVolumes, worker);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

double RatioIn(const std::string& spec) {
  constexpr std::string_view kFront = "topk:ratio=";
  EXPECT_TRUE(spec.starts_with(kFront)) << spec;
  return std::stod(spec.substr(kFront.size()));
}

TEST(WorkerSparsityTest, RatiosAreThoseOfTheRule) {
  const double published[] = {.14949, .07525, .07525}, monotone[] = {.17905, .09013, .03082};
  for (size_t w = 0; w < 3; ++w) {
    EXPECT_NEAR(RatioIn(Make("dagc-r:rule=published", .1, w)->codec()), published[w], 1e-4);
    EXPECT_NEAR(RatioIn(Make("dagc-r", .1, w)->codec()), monotone[w], 1e-4);
    EXPECT_EQ(RatioIn(Make("uniform", .1, w)->codec()), .1);
  }
  EXPECT_NEAR(RatioIn(Make("dagc-r:exponent=1", .1, 0)->codec()), .21, 1e-9);
}

TEST(WorkerSparsityTest, LaddersAreTheSameOnAllWorkersAndHaveEveryCodec) {
  for (const char* text : {"uniform", "dagc-r", "dagc-r:rule=published", "accordion",
                           "accordion:least=0.02,most=0.3", "dagc-a", "dagc-a:bits=32"}) {
    const auto first = Make(text, .1, 0);
    for (size_t w = 0; w < 3; ++w) {
      const auto policy = Make(text, .1, w);
      EXPECT_EQ(policy->ladder(), first->ladder()) << text;
      EXPECT_THAT(policy->ladder(), ::testing::Contains(policy->codec())) << text;
    }
    for (const std::string& spec : first->ladder()) EXPECT_TRUE(MakeCodec(spec).ok()) << spec;
  }
}

TEST(WorkerSparsityTest, AccordionFollowsTheNorm) {
  const auto policy = Make("accordion", .1, 1);
  EXPECT_EQ(RatioIn(policy->codec()), .1);
  policy->Next({.norm = 2}, {});
  EXPECT_EQ(RatioIn(policy->codec()), .1);  // the first norm has none to compare with
  policy->Next({.norm = 2.2}, {});
  EXPECT_EQ(RatioIn(policy->codec()), .01);
  policy->Next({.norm = 1}, {});
  EXPECT_EQ(RatioIn(policy->codec()), .1);
  EXPECT_THAT(policy->ladder(),
              ElementsAre("topk:ratio=0.01,bits=16|ef", "topk:ratio=0.1,bits=16|ef"));
}

TEST(WorkerSparsityTest, AccordionGoesByAnUpdateThatIsKnownInTime) {
  const auto policy = Make("accordion", .1, 1);
  policy->Foresee(2);
  EXPECT_EQ(RatioIn(policy->codec()), .1);
  policy->Next({.norm = 2}, {});
  policy->Foresee(2.2);
  EXPECT_EQ(RatioIn(policy->codec()), .01);
  policy->Next({.norm = 2.2}, {});
  EXPECT_EQ(RatioIn(policy->codec()), .01);
  policy->Foresee(std::numeric_limits<double>::quiet_NaN());  // nothing of it will be sent
  EXPECT_EQ(RatioIn(policy->codec()), .01);
  policy->Foresee(1);
  EXPECT_EQ(RatioIn(policy->codec()), .1);
}

TEST(WorkerSparsityTest, AbsoluteThresholdsBeginWhenTheWorkersAgreeOnOne) {
  std::vector<std::unique_ptr<WorkerSparsity>> workers;
  for (size_t w = 0; w < 3; ++w) workers.push_back(Make("dagc-a", .1, w));
  AgreedRound agreed;
  double mean = 0;
  for (auto& worker : workers) {
    EXPECT_TRUE(worker->needs_quantile());
    EXPECT_EQ(worker->codec(), "topk:ratio=0.1,bits=16|ef");
    mean += worker->Report({.norm = 1, .sent = .1, .quantile = 3}).log_threshold / 3;
    worker->Next({}, agreed);
    EXPECT_TRUE(worker->needs_quantile());
  }
  agreed = {.sent = .1, .log_threshold = mean};
  const std::vector<double> relative = *RelativeThresholds(kVolumes);
  double product = 1;
  for (size_t w = 0; w < 3; ++w) {
    workers[w]->Next({}, agreed);
    EXPECT_FALSE(workers[w]->needs_quantile());
    ASSERT_TRUE(workers[w]->threshold());
    EXPECT_NEAR(*workers[w]->threshold() / *workers[0]->threshold(), relative[w] / relative[0],
                1e-9);
    product *= *workers[w]->threshold();
    EXPECT_THAT(workers[w]->codec(), HasSubstr("threshold:value="));
    EXPECT_TRUE(MakeCodec(workers[w]->codec()).ok());
  }
  EXPECT_NEAR(product, 27, 1e-6);
  // Too much was sent: all raise their thresholds alike.
  const double before = *workers[1]->threshold();
  workers[1]->Next({}, {.sent = .2});
  EXPECT_NEAR(*workers[1]->threshold(), before * std::exp(ThresholdTracker::kGain), 1e-9);
}

TEST(WorkerSparsityTest, FramesOfThresholdsAreNoLongerThanTheLadders) {
  const auto policy = Make("dagc-a", .01, 2);
  policy->Next({}, {.sent = .1, .log_threshold = -7});
  size_t room = 0;
  for (const std::string& spec : policy->ladder()) {
    room = std::max(room, MakeCodec(spec).value()->MaxFrameBytes(5000));
  }
  EXPECT_LE(MakeCodec(policy->codec()).value()->MaxFrameBytes(5000), room);
}

TEST(WorkerSparsityTest, ARestoredOneGoesOnAlike) {
  for (const char* text : {"uniform", "dagc-r", "accordion", "dagc-a"}) {
    for (const size_t rounds : {0, 1, 7}) {
      Draws draws(12, rounds);
      const auto one = Make(text, .1, 1), other = Make(text, .1, 1);
      const auto next = [&] {
        const double log_threshold = draws.Normal();
        const OwnRound own{.norm = draws.Uniform(0, 2), .sent = draws.Uniform()};
        const AgreedRound agreed{.sent = draws.Uniform(), .log_threshold = log_threshold};
        return std::pair(own, agreed);
      };
      for (size_t i = 0; i < rounds; ++i) {
        const auto [own, agreed] = next();
        one->Next(own, agreed);
      }
      ASSERT_TRUE(other->LoadState(one->SaveState()).ok()) << text;
      for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(one->codec(), other->codec()) << text;
        const auto [own, agreed] = next();
        one->Next(own, agreed);
        other->Next(own, agreed);
      }
    }
  }
}

TEST(WorkerSparsityTest, RefusesAStateThatIsNotItsOwn) {
  const double one[] = {5}, two[] = {0, 1};
  EXPECT_EQ(Make("uniform", .1, 0)->LoadState(one).code(), StatusCode::kCorruptData);
  EXPECT_EQ(Make("accordion", .1, 0)->LoadState(one).code(), StatusCode::kCorruptData);
  EXPECT_EQ(Make("accordion", .1, 0)->LoadState({}).code(), StatusCode::kCorruptData);
  EXPECT_EQ(Make("dagc-a", .1, 0)->LoadState(two).code(), StatusCode::kCorruptData);
}

TEST(WorkerSparsityTest, WrongTextsSayWhatIsRight) {
  for (const auto& [text, words] : std::vector<std::pair<const char*, const char*>>{
           {"dagc", "uniform, dagc-r, dagc-a, accordion"},
           {"uniform|ef", "uniform, dagc-r, dagc-a, accordion"},
           {"uniform:rule=published", "it has bits"},
           {"dagc-r:rule=greedy", "uniform, published, monotone"},
           {"dagc-r:exponent=x", "0 to 10"},
           {"dagc-a:exponent=-1", "0 to 10"},
           {"accordion:most=2", "at most 1"},
           {"accordion:change=0", "above 0"},
           {"accordion:exponent=1", "least, most, change, bits"}}) {
    const auto parsed = ParseSparsity(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_THAT(parsed.status().message(), HasSubstr(words)) << text;
  }
  const auto make = [](const char* text, double ratio, size_t worker) {
    const auto made =
        WorkerSparsity::Make(ParseSparsity(text).value(), ratio, kVolumes, worker);
    return made.ok() ? "" : made.status().message();
  };
  EXPECT_THAT(make("uniform", 0, 0), HasSubstr("above 0"));
  EXPECT_THAT(make("uniform", .1, 3), HasSubstr("there are 3"));
  EXPECT_THAT(make("uniform:bits=5", .1, 0), HasSubstr("bits"));
  EXPECT_THAT(make("accordion:least=0.5", .1, 0), HasSubstr("smaller"));
  EXPECT_THAT(make("dagc-r:rule=published,exponent=1", .1, 0), HasSubstr("rule monotone"));
}

}  // namespace
}  // namespace elastiquant::policy
