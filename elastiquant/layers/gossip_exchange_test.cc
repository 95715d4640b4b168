#include "elastiquant/layers/gossip_exchange.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "elastiquant/net/testing.h"

namespace elastiquant {
namespace {

using Vector = std::vector<float>;
constexpr size_t kGossipElements = 3000;

float TargetOf(int rank, size_t e) {
  return static_cast<float>((e * 7919 + static_cast<size_t>(rank) * 31337) % 201) / 20 - 5;
}

// Each worker pulls towards a target of its own.
Status Rounds(GossipExchange* gossip, int rank, int rounds, float rate, Vector* x) {
  Vector moved(x->size());
  for (int round = 0; round < rounds; ++round) {
    EQ_RETURN_IF_ERROR(gossip->Begin());
    gossip->CopyWeights(*x);
    // Some are slower than others.
    std::this_thread::sleep_for(std::chrono::microseconds(200 * rank));
    for (size_t e = 0; e < x->size(); ++e) moved[e] = rate * (TargetOf(rank, e) - (*x)[e]);
    EQ_RETURN_IF_ERROR(gossip->Finish(moved));
  }
  EQ_RETURN_IF_ERROR(gossip->Pause());
  gossip->CopyWeights(*x);
  return {};
}

struct WorldCase {
  GossipKind kind;
  const char* graph;
  const char* codec;
  double step = 1;
  int64_t delay = 0;
};

class GossipWorlds : public testing::TestWithParam<WorldCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, GossipWorlds,
    testing::Values(WorldCase{GossipKind::kDpsgd, "ring", "fp32"},
                    WorldCase{GossipKind::kDpsgd, "one-peer-exponential", "dither:bits=4"},
                    WorldCase{GossipKind::kTracking, "ring", "dither:bits=4"},
                    WorldCase{GossipKind::kD2, "ring:lazy=1", "fp32"},
                    WorldCase{GossipKind::kDcd, "ring", "dither:bits=4"},
                    WorldCase{GossipKind::kChoco, "torus", "dither:bits=1", .3},
                    WorldCase{GossipKind::kChoco, "ring", "dither:bits=1", .2, 1},
                    WorldCase{GossipKind::kPushSum, "exponential", "fp32"},
                    WorldCase{GossipKind::kNoLoCo, "random-pairs", "dither:bits=4"},
                    WorldCase{GossipKind::kAdPsgd, "ring", "dither:bits=4"}));

std::unique_ptr<GossipExchange> MakeExchange(Communicator* comm, const WorldCase& c) {
  const auto graph = Graph::Parse(c.graph, static_cast<size_t>(comm->world_size()), 3).value();
  GossipOptions options{.kind = c.kind, .graph = graph, .elements = kGossipElements};
  options.codec = c.codec;
  options.step = c.step;
  options.delay = c.delay;
  return GossipExchange::Make(comm, options, Vector(kGossipElements)).value();
}

double DistanceOf(const std::vector<Vector>& models) {
  double sum = 0;
  for (size_t e = 0; e < kGossipElements; ++e) {
    double mean = 0;
    for (const Vector& x : models) mean += static_cast<double>(x[e]);
    mean /= static_cast<double>(models.size());
    for (const Vector& x : models) sum += std::pow(static_cast<double>(x[e]) - mean, 2);
  }
  return std::sqrt(sum / static_cast<double>(models.size()));
}

TEST_P(GossipWorlds, ComeTogetherAndResumeExactly) {
  constexpr int kWorkers = 6;
  std::vector<Vector> models(kWorkers, Vector(kGossipElements)), resumed = models;
  double before = 0;
  RunWorld(WorldOptions(kWorkers), [&](Communicator& comm) {
    const auto w = static_cast<size_t>(comm.rank());
    const auto gossip = MakeExchange(&comm, GetParam());
    Status status = Rounds(gossip.get(), comm.rank(), 20, .1f, &models[w]);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(gossip->rounds(), 20u);
    const auto state = gossip->Save();
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    ASSERT_TRUE(comm.Barrier().ok());
    if (comm.rank() == 0) before = DistanceOf(models);
    ASSERT_TRUE(comm.Barrier().ok());
    status = Rounds(gossip.get(), comm.rank(), 60, 0, &models[w]);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const ReducerStats stats = gossip->TakeStats();
    EXPECT_GT(stats.squared_norm, 0);
    EXPECT_EQ(stats.squared_error == 0, std::string(GetParam().codec) == "fp32");
    ASSERT_TRUE(comm.Barrier().ok());  // nobody is to hear of the other worker's later rounds
    const auto again = MakeExchange(&comm, GetParam());
    ASSERT_TRUE(again->Load(*state).ok());
    ASSERT_TRUE(Rounds(again.get(), comm.rank(), 60, 0, &resumed[w]).ok());
  });
  EXPECT_GT(before, 0);
  EXPECT_LT(DistanceOf(models), .2 * before);
  // Pairs meet as the clock has it.
  EXPECT_TRUE(GetParam().kind == GossipKind::kAdPsgd || models == resumed);
}

TEST(GossipExchangeTest, TheGraphMustHaveAsManyNodesAsThereAreWorkers) {
  RunWorld(WorldOptions(2), [](Communicator& comm) {
    GossipOptions options{.graph = Graph::Parse("ring", 3, 1).value(), .elements = 1};
    const auto made = GossipExchange::Make(&comm, options, Vector(1));
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.status().message().find("has 3 nodes, and there are 2"), std::string::npos);
  });
}

TEST(GossipExchangeTest, ALostNeighbourEndsTheRound) {
  std::vector<Status> ends(4);
  RunWorld(WorldOptions(4), [&](Communicator& comm) {
    const auto gossip = MakeExchange(&comm, {GossipKind::kDpsgd, "ring", "fp32"});
    Vector x(kGossipElements);
    const auto w = static_cast<size_t>(comm.rank());
    if (comm.rank() == 2) {
      ASSERT_TRUE(Rounds(gossip.get(), 2, 3, .1f, &x).ok());
      comm.Abort(Unavailable("it was told to"));
      return;
    }
    ends[w] = Rounds(gossip.get(), comm.rank(), 1000, .1f, &x);
  });
  for (const size_t w : {0, 1, 3}) {
    EXPECT_EQ(ends[w].code(), StatusCode::kUnavailable) << ends[w].ToString();
  }
}

}  // namespace
}  // namespace elastiquant
