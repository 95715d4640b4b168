// Many workers in a network in memory that delays, reorders and loses messages, and on which
// workers die and come back: 1,000 random schedules of each algorithm. A failing seed can be
// run alone: GOSSIP_SEED=N build/release/bin/protocol_test --gtest_filter='*GossipWorld*'.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "elastiquant/base/contains.h"
#include "elastiquant/base/schedules_testing.h"
#include "elastiquant/protocol/gossip/gossip.h"
#include "elastiquant/protocol/gossip/message.h"

namespace elastiquant {
namespace {

using Vector = std::vector<float>;
constexpr size_t kElements = 24;

// Worker w minimises |x - target_w|^2 / 2 with its own gradients, which differ a lot; all start
// from the same weights.
struct GossipWorld {
  struct Letter {
    int from, to;
    uint64_t round;
    std::vector<uint8_t> bytes;
  };

  GossipWorld(GossipOptions make, uint64_t seed) : options(std::move(make)), chance(seed) {
    options.elements = kElements;
    for (size_t w = 0; w < options.graph->nodes(); ++w) {
      options.rank = static_cast<int>(w);
      nodes.push_back(GossipNode::Make(options, Vector(kElements, 1)).value());
      Vector target(kElements);
      for (float& t : target) t = static_cast<float>(chance.Below(2000)) / 100 - 10;
      targets.push_back(target);
    }
    alive.assign(size(), true);
  }

  size_t size() const { return nodes.size(); }
  GossipNode& node(int w) { return *nodes[static_cast<size_t>(w)]; }
  bool is_alive(int w) const { return alive[static_cast<size_t>(w)]; }

  void Post(int from, const Result<GossipSends>& sends) {
    ASSERT_TRUE(sends.ok()) << "worker " << from << ": " << sends.status().ToString();
    for (const GossipSend& send : *sends) {
      mail.push_back({from,
                      send.to,
                      ReadGossipMessage(send.bytes)->round,
                      {send.bytes.begin(), send.bytes.end()}});
    }
  }

  // The worker's own part of a round.
  void Act(int w) {
    GossipNode& n = node(w);
    Post(w, n.OnRound());
    Vector moved(kElements);
    for (size_t e = 0; e < kElements; ++e) {
      moved[e] =
          static_cast<float>(-rate) * (n.weights()[e] - targets[static_cast<size_t>(w)][e]);
      moves[e] += static_cast<double>(moved[e]);
    }
    Post(w, n.OnMoved(moved));
  }

  void Deliver(size_t m) {
    const Letter letter = mail[m];
    mail.erase(mail.begin() + static_cast<std::ptrdiff_t>(m));
    if (!is_alive(letter.to)) return;
    Post(letter.to, node(letter.to).OnMessage(letter.from, letter.bytes));
  }

  // One thing that can happen: a worker acts, or a message comes, early or late. A message that
  // is lost is sent again, which is to come late. False if there is nothing that can happen.
  bool Step(uint64_t rounds) {
    std::vector<int> able;
    for (size_t w = 0; w < size(); ++w) {
      const auto i = static_cast<int>(w);
      if (alive[w] && !node(i).is_waiting() && node(i).round() < rounds) able.push_back(i);
    }
    if (able.empty() && mail.empty()) return false;
    if (mail.empty() || (!able.empty() && chance.Of(.4))) {
      Act(chance.From(able));
    } else {
      Deliver(chance.Of(.3) ? chance.Below(mail.size()) : 0);
    }
    return !testing::Test::HasFatalFailure();
  }

  void Run(uint64_t rounds) {
    while (Step(rounds)) {
    }
    for (size_t w = 0; w < size(); ++w) {
      ASSERT_TRUE(!alive[w] || node(static_cast<int>(w)).round() == rounds)
          << "worker " << w << " got stuck in round " << node(static_cast<int>(w)).round();
    }
  }

  std::vector<int> NeighboursOf(int w) const {
    std::vector<int> both = options.graph->receivers(w);
    for (const int peer : options.graph->senders(w)) {
      if (!Contains(both, peer)) both.push_back(peer);
    }
    std::erase_if(both, [&](int peer) { return !is_alive(peer); });
    return both;
  }

  // The worker dies, and what it has sent last comes to some neighbours only.
  void Kill(int w) {
    alive[static_cast<size_t>(w)] = false;
    std::erase_if(mail, [&](const Letter& letter) {
      return letter.to == w || (letter.from == w && chance.Of(.5));
    });
    for (size_t m = 0; m < mail.size();) {
      mail[m].from == w ? Deliver(m) : void(++m);
    }
    for (const int peer : NeighboursOf(w)) {
      Post(peer, node(peer).Drop(w, node(peer).FirstWithout(w)));
    }
  }

  // It comes back in the round that all are to begin, with weights that it is given and with
  // nothing else.
  void Revive(int w) {
    const std::vector<int> neighbours = NeighboursOf(w);
    ASSERT_FALSE(neighbours.empty());
    const Vector given(node(neighbours[0]).weights().begin(),
                       node(neighbours[0]).weights().end());
    options.rank = w;
    std::unique_ptr<GossipNode>& back = nodes[static_cast<size_t>(w)];
    back = GossipNode::Make(options, given).value();
    GossipState state = back->Save().value();
    state.round = node(neighbours[0]).round();
    for (const int peer : neighbours) {
      ASSERT_EQ(node(peer).round(), state.round);
      // It may have been lost once more before it was admitted.
      if (chance.Of(.3)) Post(peer, node(peer).Drop(w, node(peer).FirstWithout(w)));
      ASSERT_TRUE(node(peer).Admit(w, state.round, given).ok());
      const auto replica = state.vectors.find("in/" + std::to_string(peer) + "/0/replica");
      if (replica == state.vectors.end()) continue;
      const auto known = node(peer).ReplicaAt(w, 0);
      replica->second.assign(known.begin(), known.end());
    }
    const Status status = back->Load(state);
    ASSERT_TRUE(status.ok()) << status.ToString();
    alive[static_cast<size_t>(w)] = true;
  }

  Vector Mean() const {
    Vector mean(kElements);
    double count = 0;
    for (size_t w = 0; w < size(); ++w) count += alive[w] ? 1 : 0;
    for (size_t w = 0; w < size(); ++w) {
      if (!alive[w]) continue;
      for (size_t e = 0; e < kElements; ++e) {
        mean[e] += nodes[w]->weights()[e] / static_cast<float>(count);
      }
    }
    return mean;
  }
  // The root of the mean of |x_w - mean|^2.
  double Distance() const {
    const Vector mean = Mean();
    double sum = 0, count = 0;
    for (size_t w = 0; w < size(); ++w) {
      if (!alive[w]) continue;
      ++count;
      for (size_t e = 0; e < kElements; ++e) {
        sum += std::pow(static_cast<double>(nodes[w]->weights()[e] - mean[e]), 2);
      }
    }
    return std::sqrt(sum / count);
  }
  GossipOptions options;
  double rate = .05;
  Chance chance;
  std::vector<std::unique_ptr<GossipNode>> nodes;
  std::vector<Vector> targets;
  std::vector<bool> alive;
  std::vector<Letter> mail;
  std::vector<double> moves = std::vector<double>(kElements);  // of all together
};

struct GossipCase {
  const char* name;
  GossipKind kind;
  std::vector<std::string> graphs;
  std::vector<std::string> codecs;
  double step = 1;
  int64_t delay = 0;
  bool conserves = true;  // whether the mean moves by the mean of what workers want, exactly
  double floor = .05;     // how far differences die out
};

const std::vector<std::string>& Undirected() {
  static const std::vector<std::string> graphs = {
      "ring", "torus", "complete", "star", "erdos-renyi", "random-regular:degree=2"};
  return graphs;
}
std::vector<std::string> AllGraphs() {
  std::vector<std::string> graphs = Undirected();
  for (const char* more : {"exponential", "one-peer-exponential", "random-pairs"}) {
    graphs.emplace_back(more);
  }
  return graphs;
}

std::vector<GossipCase> GossipCases() {
  const std::vector<std::string> fine = {"fp32", "dither:bits=4",
                                         "elastic:bits=8,levels=uniform"};
  const std::vector<std::string> coarse = {"dither:bits=1", "topk:ratio=0.2", "efsign",
                                           "qsgd:bits=4"};
  return {
      {"dpsgd", GossipKind::kDpsgd, AllGraphs(), fine},
      {"d2", GossipKind::kD2, {"ring:lazy=1", "complete", "star:lazy=1", "torus:lazy=1"}, fine},
      {"tracking", GossipKind::kTracking, AllGraphs(), fine},
      {"dcd", GossipKind::kDcd, Undirected(), fine, 1, 0, false},
      {"ecd", GossipKind::kEcd, Undirected(), {"fp32"}, 1, 0, false},
      {"choco", GossipKind::kChoco, AllGraphs(), coarse, .1},
      {"choco-late", GossipKind::kChoco, Undirected(), coarse, .05, 1},
      {"deepsqueeze",
       GossipKind::kDeepSqueeze,
       Undirected(),
       {"fp32", "elastic:bits=8,levels=uniform"},
       .5,
       0,
       true,
       .5},  // it sends weights, not differences
      {"sgp", GossipKind::kPushSum, AllGraphs(), fine},
      {"noloco", GossipKind::kNoLoCo, {"random-pairs"}, {"fp32", "dither:bits=4"}, 1, 0, false},
      {"ad-psgd",
       GossipKind::kAdPsgd,
       {"ring", "star", "hypercube"},
       {"fp32", "dither:bits=4"}},
  };
}

class GossipWorldTest : public testing::TestWithParam<GossipCase> {
 public:
  static GossipOptions Draw(const GossipCase& c, Chance* chance, size_t most) {
    GossipOptions options{.kind = c.kind, .step = c.step, .delay = c.delay};
    options.seed = chance->Below(1 << 30);
    options.codec = chance->From(c.codecs);
    const std::string spec = chance->From(c.graphs);
    size_t nodes = 2 + chance->Below(most - 1);
    if (spec == "hypercube") nodes = size_t{1} << (1 + chance->Below(most > 8 ? 6 : 3));
    if (c.kind == GossipKind::kAdPsgd) nodes += nodes % 2;
    if (spec.starts_with("random-regular")) nodes = std::max<size_t>(nodes, 3);
    options.graph = Graph::Parse(spec, nodes, chance->Below(1 << 30)).value();
    return options;
  }
};

std::string WhatItIs(const GossipOptions& o) {
  return o.graph->spec() + " of " + std::to_string(o.graph->nodes()) + ", " + o.codec;
}

// Nobody gets stuck, what must be conserved is, both ends of edges know the same, and workers
// come together about as near as the network lets them.
TEST_P(GossipWorldTest, AnyScheduleEndsInConsensus) {
  const GossipCase& c = GetParam();
  ForEachSchedule("GOSSIP_SEED", 1000, [&](uint64_t seed) {
    Chance chance(seed);
    const bool large = seed % 50 == 0;  // up to 64 workers
    GossipWorld world(Draw(c, &chance, large ? 64 : 8), seed);
    SCOPED_TRACE(WhatItIs(world.options));
    world.Run(large ? 8 : 30);
    if (testing::Test::HasFatalFailure()) return;
    const auto n = static_cast<double>(world.size());
    if (c.conserves && world.options.graph->is_balanced()) {
      const Vector mean = world.Mean();
      for (size_t e = 0; e < kElements; ++e) {
        ASSERT_NEAR(mean[e], 1 + world.moves[e] / n, 2e-3);
      }
    }
    for (int a = 0; a < static_cast<int>(world.size()); ++a) {
      for (const int b : world.options.graph->receivers(a)) {
        const auto at = world.node(a).ReplicaAt(b, 0), of = world.node(b).ReplicaOf(a, 0);
        const bool is_exact =
            world.options.codec == "fp32" && !world.options.graph->is_static();
        if (at.empty() || of.empty() || is_exact) continue;  // then there is no replica
        ASSERT_TRUE(std::ranges::equal(at, of)) << "edge " << a << " to " << b;
      }
    }
    // Their targets are about 28 apart from the mean.
    ASSERT_LT(world.Distance(), 25);
  });
}

// After one more half of the time without gradients, differences have become small.
TEST_P(GossipWorldTest, WithoutGradientsDifferencesDieOut) {
  const GossipCase& c = GetParam();
  ForEachSchedule("GOSSIP_SEED", 20, [&](uint64_t seed) {
    Chance chance(seed);
    GossipWorld world(Draw(c, &chance, 6), seed);
    SCOPED_TRACE(WhatItIs(world.options));
    world.Run(40);
    const double before = world.Distance();
    world.rate = 0;
    world.Run(600);
    ASSERT_LT(world.Distance(), c.floor * before + 1e-3);
  });
}

// What was saved and loaded goes on with the same bits.
TEST_P(GossipWorldTest, ResumesExactly) {
  const GossipCase& c = GetParam();
  ForEachSchedule("GOSSIP_SEED", 30, [&](uint64_t seed) {
    Chance chance(seed);
    GossipWorld world(Draw(c, &chance, 6), seed);
    SCOPED_TRACE(WhatItIs(world.options));
    world.Run(10);
    GossipWorld other(world.options, seed);
    for (int w = 0; w < static_cast<int>(world.size()); ++w) {
      ASSERT_FALSE(world.node(w).is_owed());
      auto state = world.node(w).Save();
      ASSERT_TRUE(state.ok()) << state.status().ToString();
      const Status status = other.node(w).Load(*state);
      ASSERT_TRUE(status.ok()) << status.ToString();
      state->vectors["more"] = {1};
      ASSERT_FALSE(other.node(w).Load(*state).ok());
    }
    world.chance = other.chance = Chance(seed);
    world.Run(20);
    other.Run(20);
    for (size_t w = 0; w < world.size(); ++w) {
      ASSERT_TRUE(std::ranges::equal(world.nodes[w]->weights(), other.nodes[w]->weights()));
    }
  });
}

// Of algorithms whose workers have nothing of each other but replicas.
TEST(GossipLossTest, WorkersDieAndComeBack) {
  for (GossipCase c : GossipCases()) {
    const std::vector<GossipKind> others = {GossipKind::kD2, GossipKind::kTracking,
                                            GossipKind::kEcd, GossipKind::kAdPsgd};
    if (Contains(others, c.kind)) continue;
    for (uint64_t seed = 1; seed <= Tried(60); ++seed) {
      SCOPED_TRACE(c.name + std::string(", seed ") + std::to_string(seed));
      Chance chance(seed);
      GossipWorld world(GossipWorldTest::Draw(c, &chance, 8), seed);
      SCOPED_TRACE(WhatItIs(world.options));
      const auto lost = static_cast<int>(chance.Below(world.size()));
      // Without it the others must still be connected.
      if (world.options.graph->spec().starts_with("star") || world.size() < 4) continue;
      for (size_t step = chance.Below(200); step > 0; --step) world.Step(20);
      world.Kill(lost);
      world.Run(30);
      if (testing::Test::HasFailure()) return;
      world.Revive(lost);
      world.Run(60);
      if (testing::Test::HasFailure()) return;
      for (const int peer : world.NeighboursOf(lost)) {
        const auto of = world.node(peer).ReplicaOf(lost, 0);
        const auto at = world.node(lost).ReplicaAt(peer, 0);
        if (of.empty() || at.empty() || world.options.codec == "fp32") continue;
        ASSERT_TRUE(std::ranges::equal(of, at));
      }
      world.rate = 0;
      const double before = world.Distance();
      world.Run(c.step < 1 ? 500 : 250);
      ASSERT_LT(world.Distance(), .2 * before + 1e-3);
    }
  }
}

TEST(GossipLossTest, WhoIsLeftKeepsTheirMeanAndGoesOn) {
  for (const GossipCase& c : GossipCases()) {
    for (uint64_t seed = 1; seed <= Tried(100); ++seed) {
      SCOPED_TRACE(c.name + std::string(", seed ") + std::to_string(seed));
      Chance chance(seed);
      GossipOptions options = GossipWorldTest::Draw(c, &chance, 8);
      if (!options.graph->is_symmetric() || !options.graph->is_static()) continue;
      GossipWorld world(options, seed);
      const auto lost = static_cast<int>(chance.Below(world.size()));
      for (size_t step = chance.Below(100); step > 0; --step) world.Step(20);
      world.Kill(lost);
      world.Run(20);
      if (testing::Test::HasFailure()) return;
      const Vector mean = world.Mean();
      world.rate = 0;
      world.Run(30);
      if (testing::Test::HasFailure()) return;
      // Rules with a momentum of their own still move then, and so does what is owed.
      if (!c.conserves || c.delay > 0 || c.kind == GossipKind::kD2 ||
          c.kind == GossipKind::kTracking)
        continue;
      for (size_t e = 0; e < kElements; ++e) ASSERT_NEAR(world.Mean()[e], mean[e], 2e-3);
    }
  }
}

// Without one of its workers a directed graph is not doubly stochastic any more. The models of
// the others must not grow or shrink in each round because of that.
TEST(GossipLossTest, OnDirectedGraphsModelsStayNearThoseThatWereThere) {
  uint64_t tried = 0;
  for (const GossipCase& c : GossipCases()) {
    if (c.kind != GossipKind::kDpsgd && c.kind != GossipKind::kChoco) continue;
    for (uint64_t seed = 1; seed <= Tried(200); ++seed) {
      SCOPED_TRACE(c.name + std::string(", seed ") + std::to_string(seed));
      Chance chance(seed);
      const GossipOptions options = GossipWorldTest::Draw(c, &chance, 8);
      if (options.graph->spec().find("exponential") == std::string::npos) continue;
      GossipWorld world(options, seed);
      if (world.size() < 4) continue;
      const auto lost = static_cast<int>(chance.Below(world.size()));
      for (size_t step = chance.Below(100); step > 0; --step) world.Step(20);
      world.Kill(lost);
      world.Run(20);
      world.rate = 0;
      const Vector before = world.Mean();
      const double spread = world.Distance();
      world.Run(300);
      if (testing::Test::HasFailure()) return;
      ASSERT_LT(world.Distance(), .3 * spread + 1e-2);
      for (size_t e = 0; e < kElements; ++e) {
        ASSERT_NEAR(world.Mean()[e], before[e], 4 * spread + 1e-2);
      }
      ++tried;
    }
  }
  EXPECT_GT(tried, Tried(200) / 10);
}

INSTANTIATE_TEST_SUITE_P(All, GossipWorldTest, testing::ValuesIn(GossipCases()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace elastiquant
