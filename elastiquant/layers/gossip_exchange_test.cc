#include "elastiquant/layers/gossip_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elastiquant/net/crew/changing_communicator.h"
#include "elastiquant/net/memory/testing.h"

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
  return {};
}

Status RoundsAndPause(GossipExchange* gossip, int rank, int rounds, float rate, Vector* x) {
  EQ_RETURN_IF_ERROR(Rounds(gossip, rank, rounds, rate, x));
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

// As "choco_ring_delayed".
std::string NameOfWorld(const testing::TestParamInfo<WorldCase>& info) {
  std::string name;
  for (const auto& [kind_name, kind] : GossipKinds()) {
    if (kind == info.param.kind) name = kind_name;
  }
  const std::string graph = info.param.graph;
  name += "_" + graph.substr(0, graph.find(':'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name + (info.param.delay > 0 ? "_delayed" : "");
}

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
                    WorldCase{GossipKind::kAdPsgd, "ring", "dither:bits=4"}),
    NameOfWorld);

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
    Status status = RoundsAndPause(gossip.get(), comm.rank(), 20, .1f, &models[w]);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(gossip->rounds(), 20u);
    EXPECT_EQ(gossip->OddReplicas().value(), "");
    const auto state = gossip->Save();
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    ASSERT_TRUE(comm.Barrier().ok());
    if (comm.rank() == 0) before = DistanceOf(models);
    ASSERT_TRUE(comm.Barrier().ok());
    status = RoundsAndPause(gossip.get(), comm.rank(), 60, 0, &models[w]);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const ReducerStats stats = gossip->TakeStats();
    EXPECT_GT(stats.squared_norm, 0);
    EXPECT_EQ(stats.squared_error == 0, std::string(GetParam().codec) == "fp32");
    ASSERT_TRUE(comm.Barrier().ok());  // nobody is to hear of the other worker's later rounds
    const auto again = MakeExchange(&comm, GetParam());
    ASSERT_TRUE(again->Load(*state).ok());
    ASSERT_TRUE(RoundsAndPause(again.get(), comm.rank(), 60, 0, &resumed[w]).ok());
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

// All learn the edge, whichever end of it has drifted.
TEST(GossipExchangeTest, ReplicasThatDifferByABitAreNamed) {
  const WorldCase cases[] = {{GossipKind::kChoco, "ring", "dither:bits=4", .5},
                             {GossipKind::kDcd, "ring", "dither:bits=4"},
                             {GossipKind::kEcd, "ring", "dither:bits=8"},
                             {GossipKind::kDeepSqueeze, "ring", "dither:bits=4"},
                             {GossipKind::kTracking, "ring", "dither:bits=4"},
                             {GossipKind::kAdPsgd, "ring", "dither:bits=4"},
                             {GossipKind::kDpsgd, "ring", "fp32"},
                             {GossipKind::kPushSum, "one-peer-exponential", "dither:bits=4"}};
  for (const WorldCase& c : cases) {
    RunWorld(WorldOptions(4), [&](Communicator& comm) {
      const auto gossip = MakeExchange(&comm, c);
      Vector x(kGossipElements);
      ASSERT_TRUE(RoundsAndPause(gossip.get(), comm.rank(), 6, .1f, &x).ok());
      EXPECT_EQ(gossip->OddReplicas().value(), "");
      if (comm.rank() == 2) {
        EXPECT_TRUE(gossip->Drift().ok());
      }
      // The first of those whom it takes from.
      const bool is_ring = std::string(c.graph) == "ring";
      EXPECT_EQ(gossip->OddReplicas().value(), is_ring ? "1 > 2" : "0 > 2")
          << c.graph << " " << static_cast<int>(c.kind);
    });
  }
}

TEST(GossipExchangeTest, AWorkerThatSavesAloneIsOwedNothingAndNobodyHasPaused) {
  for (const int64_t delay : {0, 1}) {
    RunWorld(WorldOptions(4), [=](Communicator& comm) {
      const auto gossip = MakeExchange(&comm, {GossipKind::kChoco, "ring", "fp32", .5, delay});
      Vector x(kGossipElements);
      ASSERT_TRUE(Rounds(gossip.get(), comm.rank(), 5, .1f, &x).ok());
      if (comm.rank() == 1) {
        ASSERT_TRUE(gossip->TakeOwed().ok());
        EXPECT_TRUE(gossip->Save().ok());
      }
      const Status status = RoundsAndPause(gossip.get(), comm.rank(), 5, .1f, &x);
      EXPECT_TRUE(status.ok()) << status.ToString();
    });
  }
}

// Messages of the last round are owed then, which a step would have waited for.
TEST(GossipExchangeTest, WaitsOfAPauseAreNoneOfAStep) {
  RunWorld(WorldOptions(4), [](Communicator& comm) {
    const auto gossip = MakeExchange(&comm, {GossipKind::kChoco, "ring", "fp32", .5, 1});
    Vector x(kGossipElements);
    ASSERT_TRUE(Rounds(gossip.get(), comm.rank(), 5, .1f, &x).ok());
    EXPECT_GT(gossip->TakeStats().wait_seconds, 0);
    ASSERT_TRUE(gossip->Pause().ok());
    EXPECT_EQ(gossip->TakeStats().wait_seconds, 0);
  });
}

// Worker 1 hears at once what worker 0 hears of over a slow link: 12 kB at 1 Mbit/s are 100 ms.
TEST(GossipExchangeTest, AStepWaitsForItsMessagesToLeave) {
  CommunicatorOptions options = WorldOptions(2);
  options.wires[1] = LinkSpec{.bits_per_second = 1e6};
  RunWorld(options, [](Communicator& comm) {
    const auto gossip = MakeExchange(&comm, {GossipKind::kDpsgd, "complete", "fp32"});
    Vector x(kGossipElements);
    ASSERT_TRUE(Rounds(gossip.get(), comm.rank(), 4, .1f, &x).ok());
    EXPECT_GT(gossip->TakeStats().wait_seconds, .1);
    ASSERT_TRUE(gossip->Pause().ok());
  });
}

// What all are shown together was seen in different rounds there.
TEST(GossipExchangeTest, NothingIsComparedWhereThereAreNoReplicas) {
  RunWorld(WorldOptions(4), [](Communicator& comm) {
    const auto gossip =
        MakeExchange(&comm, {GossipKind::kDpsgd, "one-peer-exponential", "fp32"});
    Vector x(kGossipElements);
    ASSERT_TRUE(RoundsAndPause(gossip.get(), comm.rank(), 5, .1f, &x).ok());
    EXPECT_EQ(gossip->OddReplicas().value(), "");
  });
}

// On a ring every other worker asks and the rest answer: in each stretch one of each makes no
// round.
TEST(GossipExchangeTest, WorkersOfPairsMayMakeDifferentNumbersOfRounds) {
  constexpr int kWorkers = 4;
  std::vector<Vector> models(kWorkers, Vector(kGossipElements));
  double before = 0;
  RunWorld(WorldOptions(kWorkers), [&](Communicator& comm) {
    const auto gossip = MakeExchange(&comm, {GossipKind::kAdPsgd, "ring", "fp32"});
    const auto stretch = [&](int rounds, float rate) {
      ASSERT_TRUE(gossip->Open().ok());
      Vector& x = models[static_cast<size_t>(comm.rank())];
      const Status status = RoundsAndPause(gossip.get(), comm.rank(), rounds, rate, &x);
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_TRUE(gossip->is_paused());
      ASSERT_TRUE(comm.Barrier().ok());
    };
    for (int s = 0; s < 3; ++s) stretch(comm.rank() / 2 == s % 2 ? 0 : 10, .1f);
    EXPECT_EQ(gossip->rounds(), comm.rank() < 2 ? 10u : 20u);
    if (comm.rank() == 0) before = DistanceOf(models);
    ASSERT_TRUE(comm.Barrier().ok());
    stretch(comm.rank() == 1 ? 0 : 60, 0);
  });
  EXPECT_GT(before, 0);
  EXPECT_LT(DistanceOf(models), .2 * before) << "also with the one that makes none";
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

TEST(GossipExchangeTest, WorkersThatHaveAnotherGraphAreNamed) {
  RunWorld(WorldOptions(4), [](Communicator& comm) {
    const bool is_odd = comm.rank() == 1 || comm.rank() == 3;
    const auto ring = Graph::Parse("ring", 4, 1).value();
    EXPECT_TRUE(CheckSameGraph(&comm, *ring).ok());
    const auto graph = Graph::Of(is_odd ? LazyMixing(RingMixing(4)) : RingMixing(4), "./edges");
    const Status status = CheckSameGraph(&comm, **graph);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(
        status.message().find("of worker(s) 1, 3 is not that of worker 0: the file ./edges"),
        std::string::npos)
        << status.ToString();
  });
}

TEST(GossipExchangeTest, OneThatPausesTooEarlyIsNamed) {
  RunWorld(WorldOptions(4), [&](Communicator& comm) {
    const auto gossip = MakeExchange(&comm, {GossipKind::kDpsgd, "ring", "fp32"});
    Vector x(kGossipElements);
    const int rounds = comm.rank() == 2 ? 3 : 5;
    const Status status = RoundsAndPause(gossip.get(), comm.rank(), rounds, .1f, &x);
    ASSERT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    if (comm.rank() == 1 || comm.rank() == 3) {
      EXPECT_NE(status.message().find("worker 2 has paused"), std::string::npos)
          << status.ToString();
    }
    comm.Abort(status);
  });
}

// A worker of a group that changes, as its runner has it.
struct ChangingWorker {
  ChangingCommunicator comm;
  std::unique_ptr<GossipExchange> gossip;
  Vector x = Vector(kGossipElements);
  bool is_training = false;  // whether its step waits for the end of a round

  // Up to `rounds` rounds; goes on where it was.
  Status Advance(int node, uint64_t rounds, float rate) {
    Vector moved(x.size());
    while (gossip->rounds() < rounds) {
      if (!std::exchange(is_training, true)) {
        EQ_RETURN_IF_ERROR(gossip->Begin());
        gossip->CopyWeights(x);
      }
      for (size_t e = 0; e < x.size(); ++e) moved[e] = rate * (TargetOf(node, e) - x[e]);
      EQ_RETURN_IF_ERROR(gossip->Finish(moved));
      is_training = false;
    }
    return {};
  }

  Status Run(int node, uint64_t rounds, float rate) {
    EQ_RETURN_IF_ERROR(Advance(node, rounds, rate));
    EQ_RETURN_IF_ERROR(gossip->Pause());
    gossip->CopyWeights(x);
    return {};
  }
};

// Runs body(worker, node) on those nodes, which are a new group.
void RunGroup(std::vector<ChangingWorker>* workers, const std::vector<int>& nodes,
              const std::function<void(ChangingWorker&, int)>& body) {
  const CommunicatorOptions options = WorldOptions(static_cast<int>(nodes.size()));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    threads.emplace_back([=, &nodes] {
      CommunicatorOptions own = options;
      own.rank = static_cast<int>(rank);
      ChangingWorker& worker = (*workers)[static_cast<size_t>(nodes[rank])];
      auto comm = Communicator::Connect(own);
      ASSERT_TRUE(comm.ok()) << comm.status().ToString();
      worker.comm.Replace(std::move(*comm));
      body(worker, nodes[rank]);
      if (worker.gossip) worker.gossip->Leave();
      worker.comm.Replace(nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class GossipGroups : public testing::TestWithParam<WorldCase> {};
INSTANTIATE_TEST_SUITE_P(
    All, GossipGroups,
    testing::Values(WorldCase{GossipKind::kDpsgd, "ring", "fp32"},
                    WorldCase{GossipKind::kDcd, "ring", "dither:bits=4"},
                    WorldCase{GossipKind::kChoco, "torus", "dither:bits=2", .3},
                    WorldCase{GossipKind::kChoco, "complete", "dither:bits=2", .3, 1},
                    WorldCase{GossipKind::kChoco, "one-peer-exponential", "dither:bits=4", .6},
                    WorldCase{GossipKind::kDeepSqueeze, "ring", "dither:bits=8"},
                    WorldCase{GossipKind::kPushSum, "exponential", "fp32"},
                    WorldCase{GossipKind::kNoLoCo, "random-pairs", "dither:bits=4"},
                    WorldCase{GossipKind::kAdPsgd, "ring", "dither:bits=4"}),
    NameOfWorld);

// The group of 6 breaks in the middle of rounds, and so does the one after it before all have
// joined it. It goes on without two of its workers, and takes them back.
TEST_P(GossipGroups, GoOnWithoutThoseThatAreLostAndTakeThemBack) {
  std::vector<ChangingWorker> workers(6);
  RunGroup(&workers, {0, 1, 2, 3, 4, 5}, [](ChangingWorker& worker, int node) {
    worker.gossip = MakeExchange(&worker.comm, GetParam());
    worker.gossip->KeepMessages();
    if (node == 4) {
      ASSERT_TRUE(worker.Advance(node, 9, .1f).ok());
      worker.comm.Abort(Internal("it is lost"));
    } else {
      (void)worker.Advance(node, 30, .1f);  // fails in any round
    }
  });
  workers[4].gossip = nullptr;
  RunGroup(&workers, {0, 1, 2, 3, 5}, [](ChangingWorker& worker, int node) {
    if (node == 2) {
      worker.comm.Abort(Internal("it is lost"));
    } else {
      EXPECT_FALSE(worker.gossip->Join({0, 1, 2, 3, 5}, {}).ok());
    }
  });
  workers[2].gossip = nullptr;
  RunGroup(&workers, {5, 0, 3, 1}, [](ChangingWorker& worker, int node) {
    ASSERT_TRUE(worker.gossip->Join({5, 0, 3, 1}, {}).ok());
    const Status status = worker.Run(node, 40, .1f);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(worker.gossip->OddReplicas().value(), "");
  });
  const std::vector<int> all{5, 0, 3, 1, 4, 2}, newcomers{4, 2};
  std::vector<Vector> models(6);
  double before = 0;
  RunGroup(&workers, all, [&](ChangingWorker& worker, int node) {
    const bool is_new = node == 4 || node == 2;
    if (is_new) {
      const WorldCase& c = GetParam();
      GossipOptions options{.kind = c.kind, .rank = node, .elements = kGossipElements};
      options.graph = Graph::Parse(c.graph, 6, 3).value();
      options.codec = c.codec;
      options.delay = c.delay;
      worker.gossip = GossipExchange::MakeNewcomer(&worker.comm, options);
      worker.is_training = false;
    }
    ASSERT_TRUE(worker.gossip->Join(all, newcomers).ok());
    Vector given = workers[5].x;  // of rank 0, which does not move before all have met
    ASSERT_TRUE(worker.comm.Barrier().ok());
    const Status status = worker.gossip->Admit(newcomers, given);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(worker.gossip->step(), GetParam().step);
    EXPECT_EQ(worker.gossip->OddReplicas().value(), "");  // also where nothing was shown yet
    const auto w = static_cast<size_t>(node);
    const auto run = [&](uint64_t rounds, float rate) {
      const Status ended = worker.Run(node, worker.gossip->rounds() + rounds, rate);
      ASSERT_TRUE(ended.ok()) << ended.ToString();
      models[w] = worker.x;
      EXPECT_EQ(worker.gossip->OddReplicas().value(), "");
      ASSERT_TRUE(worker.comm.Barrier().ok());
      if (node == 0 && before == 0) before = DistanceOf(models);
      ASSERT_TRUE(worker.comm.Barrier().ok());
    };
    run(5, .1f);
    run(200, 0);
  });
  EXPECT_LT(DistanceOf(models), .1 * before);
}

}  // namespace
}  // namespace elastiquant
