// The published update of each algorithm, on problems that are small enough to check by hand.
#include "elastiquant/protocol/gossip/gossip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "elastiquant/protocol/gossip/doubt.h"
#include "elastiquant/protocol/gossip/message.h"
#include "elastiquant/protocol/gossip/step_search.h"

namespace elastiquant {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using Vector = std::vector<float>;

std::shared_ptr<const Graph> GraphOf(const std::string& spec, size_t nodes) {
  return Graph::Parse(spec, nodes, 1).value();
}

// Workers that all take their rounds at the same time, with weights that begin at zero.
class Few {
 public:
  Few(GossipOptions options, Vector start = {}) {
    if (start.empty()) start.resize(options.elements);
    for (size_t w = 0; w < options.graph->nodes(); ++w) {
      options.rank = static_cast<int>(w);
      auto node = GossipNode::Make(options, start);
      EXPECT_TRUE(node.ok()) << node.status().ToString();
      nodes_.push_back(std::move(node.value()));
    }
  }

  GossipNode& operator[](size_t w) { return *nodes_[w]; }
  Vector x(size_t w) const {
    return {nodes_[w]->weights().begin(), nodes_[w]->weights().end()};
  }

  void Round(const std::vector<Vector>& moved) {
    std::vector<std::tuple<int, int, std::vector<uint8_t>>> mail;
    const auto post = [&](int from, const Result<GossipSends>& sends) {
      ASSERT_TRUE(sends.ok()) << sends.status().ToString();
      for (const GossipSend& send : *sends) {
        mail.emplace_back(from, send.to,
                          std::vector<uint8_t>(send.bytes.begin(), send.bytes.end()));
      }
    };
    for (size_t w = 0; w < nodes_.size(); ++w) {
      post(static_cast<int>(w), nodes_[w]->OnRound());
      post(static_cast<int>(w), nodes_[w]->OnMoved(moved[w]));
    }
    for (size_t m = 0; m < mail.size(); ++m) {
      const auto [from, to, bytes] = mail[m];
      post(to, nodes_[static_cast<size_t>(to)]->OnMessage(from, bytes));
    }
  }

 private:
  std::vector<std::unique_ptr<GossipNode>> nodes_;
};

auto Near(const Vector& want) { return Pointwise(FloatNear(1e-5f), want); }

TEST(GossipTest, DpsgdAveragesAndThenMoves) {
  Few few({.kind = GossipKind::kDpsgd, .graph = GraphOf("ring", 3), .elements = 1});
  few.Round({{3}, {0}, {-6}});
  EXPECT_THAT(few.x(0), Near({3}));  // the average was that of zeros
  few.Round({{1}, {1}, {1}});        // W x = -1 for all
  EXPECT_THAT(few.x(0), Near({0}));
  EXPECT_THAT(few.x(2), Near({0}));
}

TEST(GossipTest, D2RemovesWhatDiffersBetweenWorkers) {
  Few few({.kind = GossipKind::kD2, .graph = GraphOf("complete", 2), .elements = 1});
  few.Round({{4}, {-2}});  // x = W d
  EXPECT_THAT(few.x(0), Near({1}));
  // 2 x - x' + d - d' = 2 + 3 - 4 = 1 and 2 - 1 + 2 = 3: W gives 2.
  few.Round({{3}, {-1}});
  EXPECT_THAT(few.x(0), Near({2}));
  EXPECT_THAT(few.x(1), Near({2}));
}

TEST(GossipTest, TrackingFollowsTheMeanStep) {
  Few few({.kind = GossipKind::kTracking, .graph = GraphOf("star", 3), .elements = 1});
  // Metropolis: the edges have 1/3. y = d; x = W (0 + d) = {1, 2, 0} of d = {3, 3, -3}.
  few.Round({{3}, {3}, {-3}});
  EXPECT_THAT(few.x(0), Near({1}));
  EXPECT_THAT(few.x(1), Near({3}));
  EXPECT_THAT(few.x(2), Near({-1}));
  // y = W y' + d - d' = {1 + 1 - 3, 3 + 1 - 3, -1 + 1 + 3} = {-1, 1, 3};
  // x = W (x + y) = W {0, 4, 2} = {2, 8/3, 4/3}.
  few.Round({{1}, {1}, {1}});
  EXPECT_THAT(few.x(0), Near({2}));
  EXPECT_THAT(few.x(1), Near({8.0f / 3}));
  EXPECT_THAT(few.x(2), Near({4.0f / 3}));
}

TEST(GossipTest, ChocoIsThePublishedExample) {
  Few few({.kind = GossipKind::kChoco,
           .graph = GraphOf("complete", 2),
           .elements = 2,
           .codec = "topk:ratio=0.5",
           .step = .5});
  few.Round({{4, 0}, {0, 2}});
  EXPECT_THAT(few.x(0), Near({3, .5}));
  EXPECT_THAT(few.x(1), Near({1, 1.5}));
  EXPECT_THAT(few[1].ReplicaOf(0, 0), Near({4, 0}));
  EXPECT_THAT(few[0].ReplicaAt(1, 0), Near({4, 0}));
  // Differences from (4, 0) and (0, 2): (-1, .5) and (1, -.5), of which -1 and 1 travel.
  few.Round({{0, 0}, {0, 0}});
  EXPECT_THAT(few[1].ReplicaOf(0, 0), Near({3, 0}));
  EXPECT_THAT(few.x(0), Near({2.5, 1}));
}

TEST(GossipTest, ChocoCanWaitForTheRoundBefore) {
  Few few({.kind = GossipKind::kChoco,
           .graph = GraphOf("complete", 2),
           .elements = 1,
           .step = .5,
           .delay = 1});
  few.Round({{4}, {0}});
  EXPECT_THAT(few.x(0), Near({4}));  // nothing has come yet
  EXPECT_FALSE(few[0].is_waiting());
  few.Round({{0}, {0}});  // of the first round: .5 * .5 * (0 - 4) = -1
  EXPECT_THAT(few.x(0), Near({3}));
  EXPECT_THAT(few.x(1), Near({1}));
}

TEST(GossipTest, DcdMovesToWhatTheNeighboursSee) {
  Few few({.kind = GossipKind::kDcd,
           .graph = GraphOf("complete", 2),
           .elements = 2,
           .codec = "topk:ratio=0.5"});
  few.Round({{4, 1}, {0, 2}});  // u = d; of which the largest counts
  EXPECT_THAT(few.x(0), Near({4, 0}));
  EXPECT_THAT(few.x(1), Near({0, 2}));
  few.Round({{0, 0}, {0, 0}});  // W ^x = (2, 1); differences (-2, 1) and (2, -1)
  EXPECT_THAT(few.x(0), Near({2, 0}));
  EXPECT_THAT(few.x(1), Near({2, 2}));
}

TEST(GossipTest, EcdExtrapolatesWhatItSends) {
  Few few({.kind = GossipKind::kEcd, .graph = GraphOf("complete", 2), .elements = 1}, {1});
  few.Round({{2}, {0}});  // x = 3 and 1; z = (1 + 3) / 2, ~x = -1 + 2 z = 3
  EXPECT_THAT(few.x(0), Near({3}));
  EXPECT_THAT(few[1].ReplicaOf(0, 0), Near({3}));
  few.Round({{0}, {0}});  // x = 2; z = 0 * 3 + 1 * 2, ~x = 0 * 3 + 1 * z
  EXPECT_THAT(few.x(0), Near({2}));
  EXPECT_THAT(few[1].ReplicaOf(0, 0), Near({2}));
  few.Round({{3}, {0}});  // x = 5; z = -.5 * 2 + 1.5 * 5 = 6.5, ~x = 2 / 3 + 2 / 3 * 6.5
  EXPECT_THAT(few[1].ReplicaOf(0, 0), Near({5}));
}

TEST(GossipTest, DeepSqueezeSendsLaterWhatWasLost) {
  Few few({.kind = GossipKind::kDeepSqueeze,
           .graph = GraphOf("complete", 2),
           .elements = 2,
           .codec = "topk:ratio=0.5",
           .step = .5});
  few.Round({{4, 3}, {0, 2}});  // (4, 0) and (0, 2) are seen; (0, 3) is remembered
  EXPECT_THAT(few.x(0), Near({3, 3.5}));
  EXPECT_THAT(few.x(1), Near({1, 1.5}));
  few.Round({{0, 0}, {0, 0}});  // v = (3, 6.5) and (1, 1.5)
  EXPECT_THAT(few[1].ReplicaOf(0, 0), Near({0, 6.5}));
  EXPECT_THAT(few.x(0), Near({3, 3.5 + .25 * (1.5 - 6.5)}));
}

TEST(GossipTest, PushSumAveragesOnGraphsThatAreNotBalanced) {
  // 0 gives to 1 and 2, 1 to 2, 2 to 0.
  const Mixing mixing{3, {1.0 / 3, 0, .5, 1.0 / 3, .5, 0, 1.0 / 3, .5, .5}};
  GossipOptions options{.kind = GossipKind::kPushSum,
                        .graph = Graph::Of(mixing, "directed").value(),
                        .elements = 1};
  Few few(options);
  few.Round({{6}, {0}, {0}});
  EXPECT_THAT(few.x(0), Near({2 / (5.0f / 6)}));  // 2 of 6, and a weight of 1/3 + 1/2
  for (int round = 0; round < 40; ++round) few.Round({{0}, {0}, {0}});
  for (size_t w = 0; w < 3; ++w) EXPECT_THAT(few.x(w), Near({2}));
  options.kind = GossipKind::kChoco;
  const std::string error = GossipNode::Make(options, Vector(1)).status().message();
  EXPECT_THAT(error, HasSubstr("only sgp"));
  EXPECT_THAT(error, HasSubstr("row 0 adds up to 0.83"));
}

TEST(GossipTest, PushSumNeedsAWayBack) {
  // 0 gives to 1, 1 to 2, 2 to 3, 3 to 0.
  const Mixing mixing{4, {.5, 0, 0, .5, .5, .5, 0, 0, 0, .5, .5, 0, 0, 0, .5, .5}};
  const auto ring = Graph::Of(mixing, "a directed ring").value();
  EXPECT_TRUE(CheckThoseLeft(GossipKind::kPushSum, *ring, {3, 2, 1, 0}).ok());
  const Status status = CheckThoseLeft(GossipKind::kPushSum, *ring, {0, 2, 3});
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("worker 2 gives to worker 3, from which no way"));
  // Others give no more than they take (rounds.h), and one that is alone keeps what it has.
  EXPECT_TRUE(CheckThoseLeft(GossipKind::kDpsgd, *ring, {0, 2, 3}).ok());
  EXPECT_TRUE(CheckThoseLeft(GossipKind::kPushSum, *ring, {0, 2}).ok());
  EXPECT_TRUE(
      CheckThoseLeft(GossipKind::kPushSum, *GraphOf("exponential", 8), {0, 1, 2, 3, 4}).ok());
}

TEST(GossipTest, NoLoCoHasAMomentumThatPullsPairsTogether) {
  Few few({.kind = GossipKind::kNoLoCo,
           .graph = GraphOf("random-pairs", 2),
           .elements = 1,
           .outer_rate = .5,
           .outer_momentum = .5});
  few.Round({{4}, {0}});  // m = .5 * (mean d + mean x - x) = 1 for both
  EXPECT_THAT(few.x(0), Near({1}));
  EXPECT_THAT(few.x(1), Near({1}));
  few.Round({{0}, {0}});  // m = .5 * 1
  EXPECT_THAT(few.x(0), Near({1.5}));
}

TEST(GossipTest, PairsAverageAndThenMove) {
  Few few({.kind = GossipKind::kAdPsgd, .graph = GraphOf("ring", 2), .elements = 1});
  few.Round({{4}, {2}});  // 1 has moved by itself when it is asked: (0 + 2) / 2
  EXPECT_THAT(few.x(0), Near({1 + 4}));
  EXPECT_THAT(few.x(1), Near({1}));
}

// A worker that was taken back has begun at other weights than the rest, and the run is saved
// before it meets worker 0 again.
TEST(GossipTest, ReplicasThatNobodyHasUsedYetResumeToo) {
  GossipOptions options{.graph = GraphOf("one-peer-exponential", 4),
                        .elements = 2,
                        .codec = "dither:bits=4",
                        .step = .5};
  const auto made = [&](int rank, const Vector& start) {
    options.rank = rank;
    return GossipNode::Make(options, start).value();
  };
  auto old = made(0, {1, 2});
  auto newcomer = made(1, {3, 4});
  ASSERT_TRUE(old->Admit(1, 0, Vector{3, 4}).ok());
  EXPECT_EQ(old->HashOf(1), newcomer->HashAt(0));
  auto old_again = made(0, {5, 6});  // all begin at the mean of the models that were saved
  auto newcomer_again = made(1, {5, 6});
  ASSERT_TRUE(old_again->Load(old->Save().value()).ok());
  ASSERT_TRUE(newcomer_again->Load(newcomer->Save().value()).ok());
  EXPECT_EQ(old_again->HashOf(1), newcomer_again->HashAt(0));
  EXPECT_EQ(old_again->HashOf(1), old->HashOf(1));
}

TEST(GossipTest, ErrorsSayWhatToDo) {
  const auto error = [](GossipOptions options) {
    options.elements = 2;
    return GossipNode::Make(options, Vector(2)).status().message();
  };
  EXPECT_THAT(error({.kind = GossipKind::kD2, .graph = GraphOf("exponential", 8)}),
              HasSubstr("gradient-tracking"));
  EXPECT_THAT(error({.kind = GossipKind::kD2, .graph = GraphOf("ring", 8)}),
              HasSubstr("'ring:lazy=1'"));
  EXPECT_EQ(error({.kind = GossipKind::kD2, .graph = GraphOf("ring:lazy=1", 8)}), "");
  EXPECT_THAT(error({.kind = GossipKind::kDcd, .graph = GraphOf("random-pairs", 4)}),
              HasSubstr("does not change"));
  EXPECT_THAT(error({.kind = GossipKind::kAdPsgd, .graph = GraphOf("ring", 5)}),
              HasSubstr("a ring of even length"));
  EXPECT_THAT(error({.kind = GossipKind::kDpsgd, .graph = GraphOf("ring", 5), .delay = 1}),
              HasSubstr("only choco"));
  EXPECT_THAT(error({.graph = GraphOf("ring", 5), .step = 0}), HasSubstr("above 0"));
  EXPECT_THAT(error({.rank = 5, .graph = GraphOf("ring", 5)}), HasSubstr("node of the graph"));
}

TEST(GossipTest, FramesThatAMessageCannotTellAreRefused) {
  EXPECT_TRUE(CheckGossipFrame(UINT32_MAX).ok());
  EXPECT_EQ(CheckGossipFrame(size_t{1} << 32).code(), StatusCode::kInvalidArgument);
  constexpr size_t kBillion = size_t{1} << 30;
  const auto made = [](size_t elements, const char* codec) {
    return EdgeOf({.elements = elements, .codec = codec}).status();
  };
  EXPECT_THAT(made(kBillion, "fp32").message(), HasSubstr("codec that sends fewer bits"));
  EXPECT_TRUE(made(kBillion - 100, "fp32").ok());
  EXPECT_TRUE(made(kBillion, "dither:bits=4").ok());
}

TEST(GossipTest, MessagesThatAreNotDueAreRefused) {
  GossipOptions options{.graph = GraphOf("ring", 4), .elements = 2};
  auto node = GossipNode::Make(options, Vector(2)).value();
  options.rank = 1;
  auto neighbour = GossipNode::Make(options, Vector(2)).value();
  options.rank = 2;
  auto other = GossipNode::Make(options, Vector(2)).value();
  const auto shown = [](GossipNode& from) {
    const GossipSends sends = from.OnMoved(Vector{1, 2}).value();
    return std::vector<uint8_t>(sends[0].bytes.begin(), sends[0].bytes.end());
  };
  const std::vector<uint8_t> good = shown(*neighbour);
  EXPECT_FALSE(node->OnMessage(2, shown(*other)).ok());  // is no neighbour
  EXPECT_FALSE(node->OnMessage(0, good).ok());
  EXPECT_FALSE(node->OnMessage(3, good).ok());  // of somebody else
  for (size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_FALSE(node->OnMessage(1, std::span(good).first(cut)).ok()) << cut;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<uint8_t> bad = good;
    bad[i] ^= 0x40;
    EXPECT_FALSE(node->OnMessage(1, bad).ok()) << i;
  }
  EXPECT_TRUE(node->OnMessage(1, good).ok());
  EXPECT_THAT(node->OnMessage(1, good).status().message(), HasSubstr("its second one"));
  EXPECT_TRUE(node->OnMoved(Vector{0, 0}).ok());
  EXPECT_THAT(node->WaitsFor(), ElementsAre(3));
  EXPECT_FALSE(node->OnMoved(Vector{0, 0}).ok());
}

TEST(StepSearchTest, FineCodecsMayStepFarAndCoarseOnesMayNot) {
  GossipOptions options{.graph = GraphOf("ring", 8), .codec = "fp32"};
  const StepSearch exact = SearchGossipStep(options).value();
  EXPECT_EQ(exact.best, 1);
  // Without compression it is the square of the graph's contraction.
  const double expected = options.graph->Factors().contraction;
  EXPECT_NEAR(exact.trials[0].contraction, expected * expected, .02);
  options.codec = "topk:ratio=0.01";
  const StepSearch coarse = SearchGossipStep(options).value();
  EXPECT_LT(coarse.best, .3);
  EXPECT_GT(coarse.trials[0].contraction, 1);
  EXPECT_EQ(SearchGossipStep(options)->best, coarse.best);
}

// Of a random 1 % each coordinate is sent in one round of a hundred. Steps of .02 and more
// bring workers nearer in the first 30 rounds, and swing ever wider after them.
TEST(StepSearchTest, CodecsThatSendFewCoordinatesAreTriedForLong) {
  GossipOptions options{.graph = GraphOf("ring", 8), .codec = "randomk:ratio=0.01"};
  const StepSearch few = SearchGossipStep(options).value();
  EXPECT_LE(few.best, .01);
  EXPECT_GE(few.best, .002);
  for (const StepTrial& trial : few.trials) {
    EXPECT_EQ(trial.contraction < 1, trial.step < .02) << trial.step;
  }
  EXPECT_LT(few.trials.back().step, few.best);
}

// As ResNet-20 has trained on this ring, or diverged (docs/reproduction.md).
TEST(DoubtTest, IsAboutWhatDivergesInTraining) {
  const auto doubt = [](GossipKind kind, const char* codec) {
    return DoubtAbout({.kind = kind, .graph = GraphOf("ring", 8), .codec = codec});
  };
  for (const char* codec : {"fp32", "qsgd:bits=8", "dither:bits=2", "dither:bits=1"}) {
    EXPECT_EQ(doubt(GossipKind::kDcd, codec), "") << codec;
  }
  EXPECT_EQ(doubt(GossipKind::kEcd, "qsgd:bits=8"), "");
  for (const char* codec : {"qsgd:bits=4", "qsgd:bits=2", "dither:bits=0.5"}) {
    EXPECT_THAT(doubt(GossipKind::kDcd, codec), HasSubstr("may diverge")) << codec;
    EXPECT_THAT(doubt(GossipKind::kEcd, codec), HasSubstr("may diverge")) << codec;
    EXPECT_EQ(doubt(GossipKind::kChoco, codec), "") << codec;
  }
  EXPECT_EQ(doubt(GossipKind::kDcd, "none"), "");  // whoever makes a node is told
}

TEST(StepSearchTest, IsForWhatIsCoarseOrLate) {
  const auto needs = [](GossipKind kind, const char* codec, int64_t delay) {
    return NeedsStepSearch({.kind = kind, .codec = codec, .delay = delay}).value();
  };
  EXPECT_FALSE(needs(GossipKind::kChoco, "fp32", 0));
  EXPECT_TRUE(needs(GossipKind::kChoco, "fp32", 1));
  EXPECT_TRUE(needs(GossipKind::kDpsgd, "dither:bits=1", 0));
  EXPECT_FALSE(needs(GossipKind::kDcd, "dither:bits=1", 0));
  EXPECT_FALSE(NeedsStepSearch({.codec = "none"}).ok());
}

// A step that is too large for what comes late swings ever wider: on this ring those of 3 / 4
// and more do (gamma (1 - lambda_min) must be below 1).
TEST(StepSearchTest, WhatComesLateNeedsASmallerStep) {
  GossipOptions options{.graph = GraphOf("ring", 4), .codec = "fp32"};
  options.delay = 1;
  const StepSearch late = SearchGossipStep(options).value();
  EXPECT_GE(late.trials[0].contraction, 1);
  EXPECT_LE(late.best, .6);
  for (const StepTrial& trial : late.trials) {
    if (trial.step != late.best) continue;
    EXPECT_LT(trial.contraction, .8);
  }
}

}  // namespace
}  // namespace elastiquant
