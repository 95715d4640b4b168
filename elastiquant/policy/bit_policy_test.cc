#include "elastiquant/policy/bit_policy.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "elastiquant/policy/dither_nmse.h"
#include "elastiquant/policy/policy_testing.h"

namespace elastiquant::policy {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const BitContext kFour{
    .weights = {.25, .25, .25, .25}, .worker = 0, .layers = 2, .rounds = 100};

std::unique_ptr<BitPolicy> Make(const std::string& text, const BitContext& context = kFour) {
  auto policy = ParseBitPolicy(text, context);
  EXPECT_TRUE(policy.ok()) << text << ": " << policy.status().ToString();
  return std::move(policy).value();
}

// Rounds that show nothing but a loss.
Observation Loss(double loss) {
  return {.loss = loss, .layers = std::vector<LayerObservation>(2)};
}

// Rounds that show gradients of these squared norms and ranges, as many as there are layers.
Observation Gradients(const std::vector<double>& squares, double range = 0) {
  Observation round{.loss = 1};
  for (const double s : squares) {
    round.layers.push_back(
        {.own_square = s, .own_range = range, .mean_of_squares = s, .square_of_mean = s / 2});
  }
  return round;
}

double Rounded(double bits) { return std::ceil(bits / kBitStep) * kBitStep; }

TEST(BitsOfLevelsTest, AreThoseOfASignAndALevel) {
  EXPECT_EQ(BitsOfLevels(1), 2);
  EXPECT_EQ(BitsOfLevels(7), 4);
  EXPECT_EQ(BitsOfLevels(127), 8);
  for (const double bits : {1.25, 2.0, 5.5}) {
    EXPECT_NEAR(BitsOfLevels(LevelsOfBits(bits)), bits, 1e-12);
  }
}

TEST(FixedBitsTest, NeverChange) {
  const auto policy = Make("fixed:bits=3");
  policy->Observe(Loss(5));
  EXPECT_THAT(policy->Bits(), ElementsAre(3, 3));
}

TEST(AdaQuantFlTest, LevelsGrowAsTheLossFalls) {
  const auto policy = Make("adaquantfl:start=3");
  EXPECT_THAT(policy->Bits(), Each(2 + 1));  // log2(3 + 1) + 1
  const struct {
    double loss, levels;
  } rounds[] = {{4, 3}, {1, 6}, {.25, 12}, {1, 6}, {9, 2}, {.04, 30}, {.039, 31}};
  for (const auto& [loss, levels] : rounds) {
    policy->Observe(Loss(loss));
    EXPECT_THAT(policy->Bits(), Each(std::min(8.0, Rounded(std::log2(levels + 1) + 1))))
        << loss;
  }
  policy->Observe(Loss(0));
  policy->Observe(Loss(NAN));
  EXPECT_THAT(policy->Bits(), Each(6));  // 31 levels, as before
}

TEST(DAdaQuantTest, ClientsGetThePublishedLevels) {
  const double weights[] = {.6, .3, .1};
  const std::vector<double> levels = ClientLevels(8, weights);
  EXPECT_NEAR(levels[0], 9.84, .005);
  EXPECT_NEAR(levels[1], 6.20, .005);
  EXPECT_NEAR(levels[2], 2.98, .005);
  BitContext context{.weights = {.6, .3, .1}, .worker = 0, .layers = 1, .rounds = 100};
  for (const double expected : {10, 6, 3}) {
    EXPECT_THAT(Make("dadaquant:start=8", context)->Bits(),
                ElementsAre(Rounded(std::log2(expected + 1) + 1)));
    ++context.worker;
  }
  context.worker = 2;
  EXPECT_THAT(Make("dadaquant:start=7,client=no", context)->Bits(), ElementsAre(4));
}

// The variance of the mean goes with sum w^2 / q^2, which is kept, and no other levels that
// keep it are fewer in all.
TEST(DAdaQuantTest, ClientLevelsKeepTheVarianceAndAreTheFewest) {
  for (uint64_t draw = 0; draw < 200; ++draw) {
    Draws draws(21, draw);
    std::vector<double> weights(2 + draws.Below(10));
    for (double& w : weights) w = draws.Uniform(.01, 1);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& w : weights) w /= total;
    const double same = draws.Uniform(1, 30);
    const auto variance = [&](const std::vector<double>& levels) {
      double sum = 0;
      for (size_t i = 0; i < levels.size(); ++i) {
        sum += weights[i] * weights[i] / (levels[i] * levels[i]);
      }
      return sum;
    };
    const auto sum_of = [](const std::vector<double>& levels) {
      return std::accumulate(levels.begin(), levels.end(), 0.0);
    };
    const std::vector<double> levels = ClientLevels(same, weights);
    const double wanted = variance(std::vector<double>(weights.size(), same));
    EXPECT_NEAR(variance(levels) / wanted, 1, 1e-9);
    std::vector<double> other = levels;
    for (double& q : other) q *= std::exp(.3 * draws.Normal());
    const double scale = std::sqrt(variance(other) / wanted);
    for (double& q : other) q *= scale;
    EXPECT_GE(sum_of(other), sum_of(levels) * (1 - 1e-9));
  }
}

TEST(DAdaQuantTest, LevelsDoubleWhenTheLossStands) {
  // With psi = 0 the running mean is the loss itself.
  const auto policy = Make("dadaquant:start=1,cap=4,psi=0,phi=3,client=no");
  const auto levels = [&] { return std::round(LevelsOfBits(policy->Bits()[0]) - .3); };
  const struct {
    double loss, levels;
  } rounds[] = {{9, 1}, {8, 1}, {7, 1}, {6, 1},   // falls
                {8, 2},                           // not below the 8 of three rounds ago
                {9, 2}, {9, 2},                   // has changed too lately
                {9, 4},                           // not below 8
                {9, 4}, {9, 4}, {9, 4}, {9, 4}};  // the cap
  for (size_t i = 0; i < std::size(rounds); ++i) {
    policy->Observe(Loss(rounds[i].loss));
    EXPECT_EQ(levels(), rounds[i].levels) << "round " << i;
  }
}

TEST(DAdaQuantTest, PatienceIsATenthOfTheRounds) {
  const auto policy = Make("dadaquant:client=no");  // of 100
  int rounds = 0;
  while (policy->Bits()[0] == 2) {
    policy->Observe(Loss(1));
    ASSERT_LE(++rounds, 100);
  }
  EXPECT_EQ(rounds, 11);
}

TEST(FedDqTest, BitsFallWithTheRangeOfTheUpdate) {
  const auto policy = Make("feddq:resolution=0.01");
  EXPECT_THAT(policy->Bits(), Each(8));
  Observation round = Gradients({1, 1}, 3.2);
  round.step_size = .1;
  round.layers[1].own_range = .8;
  policy->Observe(round);  // .32 and .08 in hundredths: 32 and 8
  EXPECT_THAT(policy->Bits(), ElementsAre(5, 3));
  round.step_size = .051;
  policy->Observe(round);  // 16.3 and 4.08
  EXPECT_THAT(policy->Bits(), ElementsAre(5, 3));
  round.step_size = .01;
  policy->Observe(round);  // 3.2 and .8: below the resolution nothing need be told
  EXPECT_THAT(policy->Bits(), ElementsAre(2, .5));
}

TEST(DqSgdTest, FollowsTheNormAndTheRoundsThatAreLeft) {
  const auto plain = Make("dq-sgd:start=4");
  EXPECT_THAT(plain->Bits(), Each(4));
  plain->Observe(Gradients({9, 16}));  // norm 5 has 7 levels
  EXPECT_THAT(plain->Bits(), Each(4));
  plain->Observe(Gradients({36, 64}));  // norm 10 has 14
  EXPECT_THAT(plain->Bits(), Each(Rounded(std::log2(15) + 1)));
  plain->Observe(Gradients({0, 1}));  // norm 1 has 1.4
  EXPECT_THAT(plain->Bits(), Each(Rounded(std::log2(2.4) + 1)));

  const auto late = Make("dq-sgd:start=4,alpha=0.5");
  for (int n = 0; n < 3; ++n) late->Observe(Gradients({9, 16}));
  EXPECT_THAT(late->Bits(), Each(Rounded(std::log2(15) + 1)));  // 7 / alpha^(2 / 2)
}

// After so many rounds the gain is no longer finite.
TEST(DqSgdTest, AZeroGradientLateInALongRunTakesTheFewestBits) {
  const auto policy = Make("dq-sgd:start=4,alpha=0.5,least=1,most=6");
  for (int n = 0; n < 2100; ++n) policy->Observe(Gradients({9, 16}));
  EXPECT_THAT(policy->Bits(), Each(6));
  policy->Observe(Gradients({0, 0}));
  EXPECT_THAT(policy->Bits(), Each(1));
  EXPECT_THAT(policy->SaveState(), Each(testing::Truly([](double v) { return v - v == 0; })));
}

TEST(AqgTest, TakesTheFewestBitsOfTheListWhoseErrorIsAllowed) {
  const auto policy = Make("aqg:bits=1/3/5,memory=2");
  EXPECT_THAT(policy->Bits(), Each(5));
  const auto show = [&](double own, double mean) {
    Observation round = Gradients({own, 0});
    round.layers[0].square_of_mean = mean;
    round.layers[1].square_of_mean = 0;
    policy->Observe(round);
  };
  // A third of .8 / 16 of the mean's square is allowed: 1/60 of it.
  show(1, 60 * DitherNmse(1) * 1.01);
  EXPECT_THAT(policy->Bits(), Each(1));
  show(1, 60 * DitherNmse(1) * .97);  // the two rounds' mean is below
  EXPECT_THAT(policy->Bits(), Each(3));
  show(100, 1);
  EXPECT_THAT(policy->Bits(), Each(5));
}

TEST(NoiseBitsTest, TakesTheLeastBitsWhoseErrorTheNoiseHides) {
  const auto policy = Make("noise:kappa=0.1,memory=0");
  EXPECT_THAT(policy->Bits(), Each(4));
  Observation round = Gradients({4, 4});
  // The first layer is all noise: of four workers the mean's square is a quarter. So sigma^2
  // = 4.
  round.layers[0].square_of_mean = 1;
  // The second has sigma^2 = (4 - 3.7) / .75 = .4.
  round.layers[1].square_of_mean = 3.7;
  policy->Observe(round);
  const std::vector<double> bits = policy->Bits();
  EXPECT_EQ(bits[0], Rounded(DitherBitsFor(.1)));
  EXPECT_EQ(bits[1], Rounded(DitherBitsFor(.01)));
  for (size_t l = 0; l < 2; ++l) {
    const double noise = l == 0 ? 4 : .4;
    EXPECT_LE(DitherNmse(bits[l]) * 4, .1 * noise);
    EXPECT_GT(DitherNmse(bits[l] - kBitStep) * 4, .1 * noise);
  }
}

TEST(NoiseBitsTest, CountsWhatIsKnownOfErrors) {
  const auto policy = Make("noise:kappa=0.1,memory=0");
  Observation round = Gradients({4, 4});
  round.layers[0].square_of_mean = 1.3;  // of which compression gave .3
  round.layers[0].mean_error = .3;
  round.layers[1].square_of_mean = 1;
  round.layers[1].nmse_ratio =
      .25;  // this layer's frames err less than those of Gaussian values
  policy->Observe(round);
  EXPECT_THAT(policy->Bits(),
              ElementsAre(Rounded(DitherBitsFor(.1)), Rounded(DitherBitsFor(.4))));
}

TEST(NoiseBitsTest, MoreNoiseNeverTakesMoreBits) {
  for (uint64_t draw = 0; draw < 50; ++draw) {
    Draws draws(23, draw);
    double last = 100;
    for (double agreement = .95; agreement > .25; agreement -= .1) {
      const auto policy = Make("noise");
      Observation round = Gradients({draws.Uniform(1, 1.0001), 1});
      for (auto& layer : round.layers) layer.square_of_mean = agreement * layer.mean_of_squares;
      policy->Observe(round);
      EXPECT_LE(policy->Bits()[0], last);
      last = policy->Bits()[0];
    }
  }
}

TEST(NoiseBitsTest, LonelyWorkersKnowNoNoise) {
  const auto policy = Make("noise", {.weights = {1}, .worker = 0, .layers = 1, .rounds = 9});
  Observation round = Gradients({1});
  policy->Observe(round);
  EXPECT_THAT(policy->Bits(), ElementsAre(4));
}

TEST(BitPolicyTest, EveryPolicyKeepsToItsRangeAndGoesOnFromItsState) {
  for (const char* name : {"fixed", "adaquantfl", "dadaquant", "dadaquant:phi=2", "feddq",
                           "dq-sgd", "dq-sgd:alpha=0.9", "aqg", "noise"}) {
    const std::string text =
        std::string(name) +
        (std::string_view(name).find(':') == std::string_view::npos ? ":" : ",") +
        "least=1,most=6";
    for (uint64_t draw = 0; draw < 20; ++draw) {
      Draws draws(22, draw);
      const auto round = [&] {
        Observation seen{.loss = std::exp(draws.Normal())};
        for (int l = 0; l < 2; ++l) {
          const double square = std::exp(3 * draws.Normal());
          seen.layers.push_back({.own_square = square,
                                 .own_range = std::exp(3 * draws.Normal()),
                                 .mean_of_squares = square * draws.Uniform(.5, 2),
                                 .square_of_mean = square * draws.Uniform()});
        }
        return seen;
      };
      const auto one = Make(text), other = Make(one->spec());
      EXPECT_EQ(one->spec(), other->spec());
      for (size_t i = draws.Below(15); i > 0; --i) one->Observe(round());
      ASSERT_TRUE(other->LoadState(one->SaveState()).ok()) << text;
      for (int i = 0; i < 20; ++i) {
        const std::vector<double> bits = one->Bits();
        ASSERT_EQ(bits.size(), 2u) << text;
        for (const double b : bits) {
          EXPECT_GE(b, 1) << text;
          EXPECT_LE(b, 6) << text;
          EXPECT_EQ(b, Rounded(b)) << text;
        }
        EXPECT_EQ(bits, other->Bits()) << text;
        const Observation next = round();
        one->Observe(next);
        other->Observe(next);
      }
    }
  }
}

TEST(BitPolicyTest, RefusesStatesThatAreNotItsOwn) {
  const double nan[] = {NAN, NAN, NAN}, many[] = {1, 2, 3, 4, 5};
  for (const char* name :
       {"fixed", "adaquantfl", "dadaquant:phi=1", "feddq", "dq-sgd", "aqg:memory=2", "noise"}) {
    const auto policy = Make(name);
    EXPECT_EQ(policy->LoadState(nan).code(), StatusCode::kCorruptData) << name;
    EXPECT_EQ(policy->LoadState(many).code(), StatusCode::kCorruptData) << name;
  }
}

TEST(BitPolicyTest, SkipsRoundsThatShowNothing) {
  const auto policy = Make("dq-sgd");
  policy->Observe(Gradients({1, 1}));
  const std::vector<double> before = policy->SaveState();
  Observation round = Gradients({5, 5});
  round.loss = NAN;
  policy->Observe(round);
  policy->Observe(Gradients({5}));
  EXPECT_EQ(policy->SaveState(), before);
}

TEST(BitPolicyTest, WrongTextsSayWhatIsRight) {
  for (const auto& [text, words] : std::vector<std::pair<const char*, const char*>>{
           {"greedy", "adaquantfl, aqg, dadaquant, dq-sgd, feddq, fixed, noise"},
           {"noise|ef", "adaquantfl, aqg"},
           {"noise:start=x", "0.5 to 8"},
           {"noise:kappa=0", "kappa=0"},
           {"noise:start=2,cap=3", "it has kappa, start, memory, least, most"},
           {"dadaquant:client=maybe", "yes, no"},
           {"dadaquant:start=4,cap=2", "from 4"},
           {"aqg:bits=2/9", "0.5 to 8"},
           {"aqg:bits=2//4", "'/'"},
           {"fixed:least=4,most=2", "from 4 to 8"}}) {
    const auto policy = ParseBitPolicy(text, kFour);
    ASSERT_FALSE(policy.ok()) << text;
    EXPECT_EQ(policy.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(policy.status().message(), HasSubstr(words)) << text;
  }
  for (const BitContext& context :
       {BitContext{}, BitContext{.weights = {.5, .4}}, BitContext{.weights = {1}, .worker = 1},
        BitContext{.weights = {1}, .layers = 0}}) {
    EXPECT_FALSE(ParseBitPolicy("noise", context).ok());
  }
}

}  // namespace
}  // namespace elastiquant::policy
